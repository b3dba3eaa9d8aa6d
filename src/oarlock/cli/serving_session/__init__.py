"""What `oarlock serve` and `oarlock run --serve` share: which model, how it is served, the wait until it is.

Imports the engines and `session`.
"""
