"""From a job to objects: the payload, pod templates, Jobs, Services, and the same as a YAML file.

Asks no cluster. Imports `api` for names, `job` and `program`.
"""
