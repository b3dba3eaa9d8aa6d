"""The model server: one supervisor, its replicas, the dialects they speak.

Travels into pods, in a separate archive: the standard library and, inside functions, what the extra
`serve` and the model's framework bring. Imports `models`, `run` and `system`; of `serving`: `generation`,
`runtimes` and `server`.
"""
