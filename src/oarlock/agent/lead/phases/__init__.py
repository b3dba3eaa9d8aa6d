"""What the phase machine decides by: the table of phases, the generation, its failures, progress and scores.

No I/O. Imports `checkpoints` and `run`; of `agent`: `net` and `protocol`.
"""
