"""What engines have in common: the agents' spec, checkpoint folders, snapshots, TensorBoard.

Knows no engine. Imports `agent`, `checkpoints`, `errors`, `job`, `program`, `records`, `run`, `serving`,
`system` and `wording`.
"""
