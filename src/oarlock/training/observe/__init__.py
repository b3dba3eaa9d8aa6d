"""Sees the progress of programs that do not report it, through hooks in the libraries they train with.

A hook is installed when the program imports its library, reports what it sees, and does nothing else. A
program's own report silences all of them. Imports `run`; of `training`: `frameworks`, `keras` and `task`.
"""
