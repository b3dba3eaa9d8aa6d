"""What `oarlock checkpoints` shows and deletes: where checkpoints are, the table, the question.

Imports `engines` and `screens`.
"""
