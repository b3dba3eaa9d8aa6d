"""A model that is served on a cluster: its Deployment, everything around it, and the engine of both.

Imports all other packages of `kubernetes`.
"""
