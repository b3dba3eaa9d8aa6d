"""The processes: the supervisor, and the replicas with their loaded models.

Only `python -m oarlock.serving` starts them. Imports `models`, `system` and `training`; of `serving`:
`batching`, `counters`, `draining_signals`, `fleet`, `generation`, `http`, `runtimes` and `settings`.
"""
