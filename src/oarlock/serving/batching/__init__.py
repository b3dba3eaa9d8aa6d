"""How requests become batches: a queue bounded by time, and the thread that runs the model.

Imports `runtimes`, `served` and `counters` of `serving`.
"""
