"""The agent: one process per machine that hosts the machine's tasks; one of them also leads the run.

Standard library only, never a framework. Imports `run`, `system`, `checkpoints` and `training`.
Travels into pods.
"""
