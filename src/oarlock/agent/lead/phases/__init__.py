"""What the phase machine decides by: the table of phases, the generation, its failures, progress and scores.

No I/O. Imports `protocol`, `net.deadlines` and `run`.
"""
