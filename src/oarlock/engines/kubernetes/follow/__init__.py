"""What keeps the record here in step with the cluster: pods, logs, the ledger, lost pods.

Imports `api`, `lifecycle` and `diagnose`.
"""
