"""Sockets: the event loop, connections, an agent's link to the leading agent, a client's questions.

Imports `protocol`.
"""
