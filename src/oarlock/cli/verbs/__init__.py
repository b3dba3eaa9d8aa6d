"""One file per verb, each with a `verb` command, imported only when it is called.

A verb imports everything below; nothing imports a verb.
"""
