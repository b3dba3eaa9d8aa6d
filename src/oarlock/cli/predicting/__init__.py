"""What `oarlock predict` is made of: examples from what the user gives, a server that answers, the printing.

Imports `engines`, `errors`, `records`, `serving` and `system`; of `cli`: `serving_session`.
"""
