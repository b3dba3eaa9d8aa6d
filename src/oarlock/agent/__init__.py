"""The agent: one process per machine that hosts the machine's tasks; one of them also leads the run.

Standard library only, never a framework. Travels into pods. Imports `run` and `system`; of `agent`: `agents`,
`host`, `ingest`, `lead`, `net`, `protocol`, `record`, `snapshots`, `task_side` and `zygote`.
"""
