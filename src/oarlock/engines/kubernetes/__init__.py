"""The Kubernetes engine: built-in objects in one namespace, and a client that only watches.

Nothing is installed on the cluster. Imports `agent`, `errors`, `job`, `records` and `run`; of `engines`:
`api`, `before_start`, `claims`, `deployments`, `engine`, `follow`, `lifecycle`, `manifests`, `plan`,
`predictions` and `shared`.
"""
