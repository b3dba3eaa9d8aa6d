"""How long agents wait for each other. Both sides must use the same numbers. Pure."""

from __future__ import annotations

FENCE = 10.0  # seconds without the leading agent after which an agent ends its tasks
LOST = FENCE + 2.0  # seconds after which the leading agent gives up on an agent: its tasks have ended by then
