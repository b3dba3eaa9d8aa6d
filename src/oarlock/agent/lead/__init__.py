"""The deciding half, in the leading agent only: who joins, which tasks run where, what a failure means.

Talks to hosts through messages alone. Imports `protocol`, `net`, `record` and `snapshots`, never `host`.
"""
