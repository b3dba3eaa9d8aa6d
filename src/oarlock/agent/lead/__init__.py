"""The deciding half, in the leading agent only: who joins, which tasks run where, what a failure means.

Talks to hosts through messages alone. Imports `run`; of `agent`: `agents`, `ingest`, `net`, `phases`,
`protocol` and `snapshots`.
"""
