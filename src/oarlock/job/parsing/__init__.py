"""From YAML, TOML and flags to plain data and structs, with errors that name file, line and field.

Knows nothing of jobs. Imports `errors`, `quantities` and `wording`.
"""
