"""What a run would create and need, and what the cluster allows. Creates nothing.

Imports `api`, `manifests`, `diagnose`, and `deployments` for what serving would create.
"""
