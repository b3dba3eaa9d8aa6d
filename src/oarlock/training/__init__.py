"""What a program imports: `oarlock.current()`, `State`, `data` and `keras`.

Standard library plus the one framework that the program uses, imported inside functions.
Imports `run`, `system` and `checkpoints`. Travels into pods.
"""
