"""What a program imports: `oarlock.current()`, `State`, `data`, `keras` and `export`.

Standard library plus the one framework that the program uses, imported inside functions. Travels into pods.
Imports `checkpoints`; of `training`: `data`, `frameworks`, `saving` and `steps`.
"""
