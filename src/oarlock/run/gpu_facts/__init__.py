"""What is known about GPUs without touching one: which task sees which, how fast they are, how they fail.

All of it is pure and travels into pods. Imports of `run`: `cluster`, `contract` and `quick_dataclass`.
"""
