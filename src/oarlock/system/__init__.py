"""What Oarlock needs from the operating system: processes, ports, file descriptors, durable files, stacks.

Knows nothing of jobs, runs or training. Travels into pods. Imports nothing else of Oarlock.
"""
