"""The program's folder: what it imports, which framework it uses, what travels and what stays behind.

Reads, never runs the program. Imports `agent`, `errors`, `job`, `models`, `records`, `run`, `system` and
`wording`.
"""
