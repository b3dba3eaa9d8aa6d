"""What keeps the record here in step with the cluster: pods, logs, the ledger, lost pods.

Imports `agent`, `errors`, `records`, `run` and `system`; of `engines`: `api`, `diagnose` and `lifecycle`.
"""
