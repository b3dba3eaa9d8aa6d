"""Checkpoints at rest: the folder, its files, which ones to keep, and object storage.

Used by programs, agents and clients alike. Travels into pods. Imports `system`.
"""
