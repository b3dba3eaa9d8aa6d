"""Checkpoints on the move: to machines without the volume, to object storage and back.

Files that a program writes next to itself travel the same way. Imports `checkpoints`, `models`, `run` and
`system`; of `agent`: `net`, `protocol` and `record`.
"""
