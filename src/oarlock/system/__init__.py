"""What Oarlock needs from the operating system: processes, ports, file descriptors, durable files, stacks.

Knows nothing of jobs, runs or training. Imports nothing else of Oarlock. Travels into pods.
"""
