"""Pods that answer `oarlock predict --on kubernetes`: model servers for one client alone.

Imports `deployments`, whose pod it is, `claims` for the lease, and `follow` to have lost pods replaced.
"""
