"""What agents, tasks and clients say to each other, and the one place that reads and checks it.

Pure: no sockets here. Imports `run` only.
"""
