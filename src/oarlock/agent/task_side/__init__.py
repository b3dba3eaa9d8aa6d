"""What the runner (`zygote/runner.py`) sets up in a task's process: title, input, a watch on its GPUs.

Imports `system`; of `agent`: `protocol`.
"""
