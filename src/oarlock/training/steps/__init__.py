"""What happens between two steps: when to save, and how all ranks save or stop before the same step.

Imports `run`; of `training`: `frameworks`, `saving` and `task`.
"""
