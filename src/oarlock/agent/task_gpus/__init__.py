"""The GPUs of one agent's tasks: which task has which, their readings, failures, and when they are free.

Hosts use it. Imports `run` and `system`.
"""
