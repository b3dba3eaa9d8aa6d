"""What `oarlock serve` and `oarlock run --serve` share: which model, how it is served, the wait until it is.

Imports `engines`, `errors`, `job`, `models`, `quantities`, `records`, `screens`, `serving`, `system` and
`wording`; of `cli`: `arguments` and `session`.
"""
