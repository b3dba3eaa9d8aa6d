"""A model that is served on a cluster: its Deployment, everything around it, and the engine of both.

Imports `agent`, `errors`, `job`, `models`, `program`, `quantities`, `records`, `run`, `serving` and `system`;
of `engines`: `api`, `claims`, `diagnose`, `engine`, `follow`, `lifecycle`, `manifests` and `shared`.
"""
