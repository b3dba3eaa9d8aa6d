"""Pods that answer `oarlock predict --on kubernetes`: model servers for one client alone.

The pod is that of `deployments`, the lease that of `claims`; `follow` has lost pods replaced. Imports
`errors` and `job`; of `engines`: `api`, `claims`, `deployments`, `diagnose`, `follow`, `lifecycle` and
`shared`.
"""
