"""The parts of the supervisor: the replicas it forks, the versions it chooses, what it announces.

No framework. Imports `checkpoints`, `models`, `run` and `system`; of `serving`: `counters`,
`draining_signals`, `http` and `settings`.
"""
