"""What a program imports: `oarlock.current()`, `State`, `data`, `keras` and `export`.

Standard library plus the one framework that the program uses, imported inside functions.
Imports `run`, `system`, `checkpoints` and `models`. Travels into pods.
"""
