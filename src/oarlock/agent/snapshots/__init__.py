"""Checkpoints on the move: to machines without the volume, to object storage and back.

Imports `checkpoints`, `protocol` and `net`.
"""
