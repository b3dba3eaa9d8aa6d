"""The deciding half, in the leading agent only: which agents join, which tasks run where, what failures mean.

Reaches hosts only through messages. Imports `run`; of `agent`: `agents`, `ingest`, `net`, `phases`,
`protocol` and `snapshots`.
"""
