"""What a run would create and need, and what the cluster allows. Creates nothing.

Imports `errors`, `job`, `serving` and `units`; of `engines`: `api`, `before_start`, `deployments`, `diagnose`
and `manifests`.
"""
