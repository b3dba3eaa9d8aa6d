"""How a run looks: plain lines, the live display, JSON, summaries, and the only functions that print.

Imports `records` and `engines`, never a verb.
"""
