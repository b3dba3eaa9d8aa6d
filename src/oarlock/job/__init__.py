"""The job: what the user writes, checked and immutable, and where it is found.

Does no training and starts nothing. Imports `errors`, `quantities`, `run` and `wording`; of `job`: `parsing`.
"""
