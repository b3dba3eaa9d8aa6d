"""What lies on a run's claims: pods that mount them, pulling files, checkpoints; and the pods of its tasks.

Imports `agent`, `checkpoints`, `errors`, `job`, `program`, `records`, `run`, `system` and `wording`; of
`engines`: `api`, `diagnose`, `lifecycle`, `manifests` and `shared`.
"""
