"""How a run looks: plain lines, the live display, JSON, summaries, and the only functions that print.

Knows no verb. Imports `agent`, `engines`, `errors`, `program`, `records`, `run`, `serving`, `system`, `units`
and `wording`.
"""
