"""Checkpoints scored once, outside of a run: on the machine of a client, or in a pod of their own.

Imports `protocol`, `host`, `ingest`, `snapshots` and `zygote`; no loop and no record. Travels into pods.
"""
