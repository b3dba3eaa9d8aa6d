"""The page at `/`: static files of our own, and the module that reads them.

The page loads nothing from elsewhere and talks to the same server in its public dialects. Imports nothing
else of Oarlock.
"""
