"""What the supervisor is made of: the replicas it forks, the versions it chooses, what it says.

No framework. Imports `checkpoints`, `models`, `run` and `system`; of `serving`: `counters`,
`draining_signals`, `http` and `settings`.
"""
