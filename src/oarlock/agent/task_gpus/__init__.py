"""The GPUs of one agent's tasks: which are whose, what they say, how they fail, whether they are free again.

Imports `run` and `system`, and nothing else of `agent`: hosts use it.
"""
