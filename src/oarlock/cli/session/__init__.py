"""What verbs share: find a run, follow it to its end, ask its leading agent, pass streams through.

Imports `engines` and `screens`.
"""
