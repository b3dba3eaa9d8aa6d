"""The local engine: one agent process on this machine hosts all tasks and owns the run.

Imports `agent`, `checkpoints`, `errors`, `job`, `program`, `records`, `run`, `serving`, `system`, `units` and
`wording`; of `engines`: `agent_process`, `before_start`, `engine`, `known_engines`, `shared` and
`side_by_side`.
"""
