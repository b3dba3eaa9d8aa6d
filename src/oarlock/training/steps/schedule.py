"""When to save: after a number of steps or seconds, or at the end of every epoch. Pure."""

from __future__ import annotations

import re

from oarlock.run.quick_dataclass import dataclass

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Schedule:
    """Save every `steps` steps or every `seconds` seconds; with neither, only when asked to stop and at the
    end."""

    steps: int | None = None
    seconds: float | None = None

    def is_due(self, step: int) -> bool:
        """Whether to save before `step`, which every rank can tell on its own. Rank 0 counts the seconds."""
        return self.steps is not None and step % self.steps == 0


def read(save: int | str | None, epoch: int | None = None) -> Schedule:
    """Read `save=`: 100 (steps), "30s", "epoch" (of `epoch` steps), or None."""
    if save is None:
        return Schedule()
    if isinstance(save, int) and not isinstance(save, bool) and save > 0:
        return Schedule(steps=save)
    if save == "epoch":
        if epoch is None:
            raise ValueError('save="epoch" needs the length of an epoch: pass batches=, too')
        return Schedule(steps=epoch)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", save) if isinstance(save, str) else None
    if found is None or float(found[1]) == 0:
        raise ValueError(f'save={save!r}: expected a number of steps, a time like "30s" or "5m", or "epoch"')
    return Schedule(seconds=float(found[1]) * _UNITS[found[2]])
