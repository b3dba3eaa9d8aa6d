"""What `oarlock doctor` checks: this machine, its frameworks, a cluster.

Imports `engines` and `screens`.
"""
