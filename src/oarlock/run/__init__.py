"""What a run is: its tasks and ranks, their environment, its events, and where its time went.

Pure: no I/O, no waiting. Travels into pods. Imports nothing else of Oarlock.
"""
