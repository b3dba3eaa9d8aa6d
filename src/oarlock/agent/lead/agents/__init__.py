"""The machines of a run, as the leading agent sees them: seats, slots, and which task runs where.

Imports `protocol` and `net`, and nothing else of `lead`.
"""
