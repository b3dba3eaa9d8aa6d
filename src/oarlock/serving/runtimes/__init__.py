"""What computes a model's answers: a module for each format and for each faster form of one.

A runtime is loaded in the process that uses it, after the last fork, and knows about each format what
`training.exporting` does. Frameworks are imported inside functions. Imports `models` and `training`.
"""
