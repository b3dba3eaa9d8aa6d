"""The model server: one supervisor, its replicas, the dialects they speak.

Imports `run`, `system`, `checkpoints`, `models` and `training`. Travels into pods, in an archive of its own:
the standard library and, inside functions, what the extra `serve` and the model's framework bring.
"""
