"""A task's view of itself: who it is, its channel to the agent, how busy it is.

Imports nothing else of `training`.
"""
