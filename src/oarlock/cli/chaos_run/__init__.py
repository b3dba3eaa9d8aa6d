"""What `oarlock chaos` does: draw faults, inflict them, report how the run recovered.

Imports `agent`, `engines`, `errors`, `records`, `run`, `system` and `units`; of `cli`: `session`.
"""
