"""The agent as a pod's first process: unpack the program, install packages, lead or follow.

Beside it, what clients run in pods by `exec`: a question to the leading agent, and scores of checkpoints.
Nothing imports it but the client's bundle. Imports `checkpoints`, `run` and `system`; of `agent`: `follower`,
`leader`, `net`, `protocol`, `record`, `score`, `snapshots` and `spec_files`.
"""
