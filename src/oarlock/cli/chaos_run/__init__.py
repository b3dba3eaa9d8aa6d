"""What `oarlock chaos` does: draw faults, inflict them, report how the run recovered.

Imports `engines` and `screens`.
"""
