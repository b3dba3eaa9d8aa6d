"""The zygote imports the framework once and forks a process per task, which begins in the runner.

Imports `run`, `system` and `training`; of `agent`: `protocol` and `task_side`.
"""
