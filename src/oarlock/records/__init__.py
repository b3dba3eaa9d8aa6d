"""Run records on this machine: names, files, locks, and events and logs as they grow.

Starts nothing and asks no cluster. Imports `agent`, `errors`, `quantities`, `run` and `system`.
"""
