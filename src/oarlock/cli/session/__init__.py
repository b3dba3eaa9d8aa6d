"""What verbs share: find a run, follow it to its end, ask its leading agent, pass streams through.

Imports `agent`, `checkpoints`, `engines`, `errors`, `job`, `program`, `records`, `run`, `screens` and
`system`.
"""
