"""The phases of a run, and which may follow which. Pure.

gathering -> running -> clearing    a task failed, an agent was lost or joined: the gang restarts
                     -> scoring     the leader task ended with 0, and the evaluator scores what is left
                     -> finishing   all work is done
                     -> stopping    the user asked, the machine has to leave, or a limit was reached
                     -> halting     before an end that is not a failure, if all trainers have gates:
                                    they save and exit before the same step, and that end follows
... -> over
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Phase = Literal["gathering", "running", "halting", "clearing", "scoring", "finishing", "stopping", "over"]
TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    "gathering": frozenset({"running", "stopping", "over"}),
    "running": frozenset({"halting", "clearing", "scoring", "finishing", "stopping", "over"}),
    "halting": frozenset({"clearing", "finishing", "stopping", "over"}),
    "clearing": frozenset({"gathering", "stopping", "over"}),
    "scoring": frozenset({"finishing", "stopping"}),
    "finishing": frozenset({"stopping", "over"}),
    "stopping": frozenset({"stopping", "over"}),  # a second stop, without grace
    "over": frozenset(),
}
