"""The hosting half, in every agent: makes this machine's tasks be what the leading agent wants.

Knows nothing of `lead`: what to do comes as messages. Imports `run`, `system` and `training`; of `agent`:
`net`, `protocol`, `record`, `task_gpus`, `task_side` and `zygote`.
"""
