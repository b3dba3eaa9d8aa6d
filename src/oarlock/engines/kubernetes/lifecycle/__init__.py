"""What changes a run on its cluster: submit, ask, stop, resume, scale, delete, repair.

Imports `api` and `manifests`.
"""
