"""Sockets: the event loop, connections, the link to the leading agent, and questions from clients.

Imports of `agent`: `protocol`.
"""
