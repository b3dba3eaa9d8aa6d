"""Data in: the ingest stage of a run, and its sources, fetched to this machine.

Standard library only; obstore is loaded if data or a source is in object storage. Imports `checkpoints`,
`run`, `system` and `training`; of `agent`: `host`, `net`, `protocol`, `record` and `snapshots`.
"""
