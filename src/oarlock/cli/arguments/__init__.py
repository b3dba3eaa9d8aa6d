"""Arguments and options that several verbs share.

Imports `job` and `records`.
"""
