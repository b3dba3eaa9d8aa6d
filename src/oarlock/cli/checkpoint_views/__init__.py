"""What `oarlock checkpoints` shows and deletes: where checkpoints are, the table, the deletion.

Imports `agent`, `engines`, `errors`, `records`, `screens` and `units`; of `cli`: `session`.
"""
