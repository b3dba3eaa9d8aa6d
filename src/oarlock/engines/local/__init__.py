"""The local engine: one agent process on this machine hosts all tasks and owns the run.

Imports `engines.shared`.
"""
