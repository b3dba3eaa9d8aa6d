"""What agents, tasks and clients say to each other, and the one place that reads and checks it.

Pure: no sockets and no files here. Imports `run` and `system`.
"""
