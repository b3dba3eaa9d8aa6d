"""The Kubernetes engine: built-in objects in one namespace, and a client that only watches.

Imports `engines.shared`. Nothing is installed on the cluster.
"""
