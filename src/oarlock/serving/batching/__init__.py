"""How requests become batches: a queue bounded by time, and the thread that runs the model.

Imports `models`; of `serving`: `counters`, `runtimes`, `served` and `settings`.
"""
