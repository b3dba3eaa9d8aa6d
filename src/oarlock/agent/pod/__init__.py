"""The agent as a pod's first process: unpack the program, install packages, lead or follow.

Beside it, what clients run in pods by `exec`: a question to the leading agent, and scores of checkpoints.

Imports all of `agent`; nothing imports it but the client's bundle.
"""
