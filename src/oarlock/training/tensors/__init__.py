"""A program's objects as named tensors, their bytes, and back, for every framework.

`capture` has the objects, `tensor_bytes` single tensors; `gpu_restore` brings many onto a GPU. Imports
`checkpoints` and `run`.
"""
