"""The GPUs of one agent's tasks: which are whose, what they say, how they fail, whether they are free again.

Hosts use it. Imports `run` and `system`.
"""
