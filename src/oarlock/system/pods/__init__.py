"""What the first process of a pod does before its work: places, archives, packages.

The agent of a training pod and the model server's pod share it. Imports of `system`: `safe_names`.
"""
