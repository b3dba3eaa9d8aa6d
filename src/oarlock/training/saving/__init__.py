"""From a program's objects to a checkpoint on disk and back.

`session` restores and saves for one training loop. To save, it turns objects into tensors (`tensors`),
`writer_handle` copies them into memory shared with the `writer` process (from GPUs: `gpu_copy`, `jax_copy`),
and the writer commits to `checkpoints.store`. Imports `checkpoints`, `run` and `system`; of `training`:
`task` and `tensors`.
"""
