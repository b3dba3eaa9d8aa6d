"""The agent as a pod's first process: unpack the program, install packages, lead or follow.

Imports all of `agent`; nothing imports it but the client's bundle.
"""
