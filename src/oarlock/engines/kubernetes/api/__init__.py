"""Talking to the API server: requests, logins, websockets, exec, port forwarding, names and quantities.

Knows nothing of jobs. Imports `errors` and `system`.
"""
