"""What `oarlock checkpoints` shows and deletes: where checkpoints are, the table, the deletion.

Imports `engines` and `screens`.
"""
