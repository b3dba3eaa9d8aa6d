"""The processes: the supervisor, and the replicas with the models that they have loaded.

Imports all other packages of `serving`; only `python -m oarlock.serving` imports it.
"""
