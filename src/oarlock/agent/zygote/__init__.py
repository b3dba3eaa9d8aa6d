"""The zygote imports the framework once and forks a process per task, which begins in the runner.

Imports `system`, `protocol` and `training`.
"""
