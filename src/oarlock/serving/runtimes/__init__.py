"""What computes a model's answers: a module for each format and for each faster form of one.

A runtime is loaded in the process that uses it, after the last fork. Imports `models` and what
`training.exporting` knows of each format; frameworks inside functions.
"""
