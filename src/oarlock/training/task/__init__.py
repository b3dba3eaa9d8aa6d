"""A task's view of itself: its role and rank, its channel to the agent, how busy it is.

Imports `run` and `system`.
"""
