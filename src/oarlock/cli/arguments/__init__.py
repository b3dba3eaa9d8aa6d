"""Arguments and options that several verbs share.

Imports `errors`, `job`, `records` and `screens`.
"""
