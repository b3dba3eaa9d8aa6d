"""The GPUs of this machine as the system shows them: NVIDIA's library, AMD's files, the kernel log.

No framework is imported and nothing is allocated on a GPU. Travels into pods. Imports nothing else of
Oarlock.
"""
