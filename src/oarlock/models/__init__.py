"""Exported models at rest: the folder of versions, and the manifest of each.

Written by programs (`oarlock.export`), read by the model server and by clients. Travels into pods. Imports
`run` and `system`.
"""
