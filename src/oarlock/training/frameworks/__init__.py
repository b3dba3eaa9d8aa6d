"""What Oarlock does to a framework when the program imports it: hooks, seeds, loopback, JAX's cluster.

Imports nothing else of Oarlock.
"""
