"""What engines have in common: the agents' spec, checkpoint folders, snapshots, TensorBoard.

Imports no engine.
"""
