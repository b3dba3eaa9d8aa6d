"""The Kubernetes engine: built-in objects of one namespace, and a client that only watches."""
