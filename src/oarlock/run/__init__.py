"""What a run is: its tasks and ranks, their environment, its events, and where its time went.

Pure: no I/O, no waiting. Imports nothing else of Oarlock. Travels into pods.
"""
