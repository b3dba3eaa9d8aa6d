"""From a job to objects: the payload, pod templates, Jobs, Services, and the same as a YAML file.

Asks no cluster. Imports `agent`, `checkpoints`, `errors`, `job`, `program`, `quantities`, `run` and
`wording`; of `engines`: `api` and `shared`.
"""
