"""The page at `/`: our own static files, and the module that reads them.

The page loads nothing from other origins and talks to the same server in its public dialects. Imports nothing
else of Oarlock.
"""
