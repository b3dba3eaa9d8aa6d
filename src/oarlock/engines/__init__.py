"""Where runs run: one folder per engine, behind the one interface in `engine.py`.

Imports everything below (`job`, `program`, `records`, `agent`), never a screen or a verb. A new engine is a
folder here with a class that implements `engine.Engine`, and one line in `known_engines.ENGINES`.
"""
