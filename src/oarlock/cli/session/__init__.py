"""What verbs do with a run: find it, follow it to its end, ask its agent, pass streams through.

Imports `engines` and `screens`.
"""
