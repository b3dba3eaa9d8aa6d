"""The hosting half, in every agent: makes this machine's tasks be what the leading agent wants.

Imports `protocol`, `net`, `record`, `zygote` and `snapshots`, never `lead`.
"""
