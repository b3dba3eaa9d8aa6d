"""Checkpoints scored once, outside of a run: on the machine of a client, or in a pod of their own.

No loop and no record. Travels into pods. Imports `checkpoints`, `run`, `system` and `training`; of `agent`:
`host`, `ingest`, `protocol`, `snapshots` and `zygote`.
"""
