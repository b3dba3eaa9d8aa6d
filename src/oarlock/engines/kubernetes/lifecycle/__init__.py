"""What changes a run on its cluster: submit, ask, stop, resume, scale, delete, repair.

Imports `agent`, `errors`, `job`, `records`, `run` and `system`; of `engines`: `api`, `diagnose`, `manifests`
and `shared`.
"""
