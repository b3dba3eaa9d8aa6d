"""The processes: the supervisor, and the replicas with the models that they have loaded.

Only `python -m oarlock.serving` starts it. Imports `models`, `system` and `training`; of `serving`:
`batching`, `counters`, `draining_signals`, `fleet`, `generation`, `http`, `runtimes` and `settings`.
"""
