"""What lies on a run's claims: pods that mount them, pulling files, checkpoints; and the pods of its tasks.

Imports `api`, `manifests`, `lifecycle` and `diagnose`.
"""
