"""What agents, tasks and clients send each other, and the one place that reads and checks it.

Pure: no sockets and no files here. Imports `run` and `system`.
"""
