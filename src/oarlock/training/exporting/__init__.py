"""`oarlock.export`: a trained model becomes a version in the model folder; a module for each framework.

Imports `run`, `system`, `models` and `task`; the one framework of the model inside functions. Travels into
pods.
"""
