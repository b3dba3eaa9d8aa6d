"""The run's record as agents write it: events, logs in segments, the lines a pod prints, which pod leads.

Imports `run` and `system`.
"""
