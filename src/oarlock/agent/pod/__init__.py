"""The agent as a pod's first process: unpack the program, install packages, lead or follow.

Also what clients run in pods with `exec`: a question to the leading agent, and scores of checkpoints. Only
the client's bundle imports it. Imports `checkpoints`, `run` and `system`; of `agent`: `follower`, `leader`,
`net`, `protocol`, `record`, `score`, `snapshots` and `spec_files`.
"""
