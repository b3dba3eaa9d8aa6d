"""What lies on a run's claims: pods that mount them, pulling files, listing checkpoints.

Imports `api`, `manifests`, `lifecycle` and `diagnose`.
"""
