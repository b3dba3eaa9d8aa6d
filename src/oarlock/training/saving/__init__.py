"""From a program's objects to a checkpoint on disk and back: capture, copy, write, restore.

Imports `task` and `checkpoints`.
"""
