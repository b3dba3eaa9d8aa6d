"""The machines of a run, as the leading agent sees them: seats, slots, and which task runs where.

Imports `run` and `system`; of `agent`: `net` and `protocol`.
"""
