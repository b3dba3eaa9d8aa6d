"""Where runs run: one folder per engine, behind the one interface in `engine.py`.

Knows no screen and no verb. A new engine is a folder here with a class that implements `engine.Engine`, and
one line in `known_engines.ENGINES`. Imports `agent`, `errors`, `job`, `records`, `run`, `serving` and
`system`; of `engines`: `shared`.
"""
