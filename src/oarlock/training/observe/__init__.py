"""Sees the progress of programs that do not report it: hooks in the libraries that they train with.

A hook is installed when the program imports its library, reports what it sees, and does nothing else. A
report of the program's own silences them all. Imports `run`; of `training`: `frameworks`, `keras` and `task`.
"""
