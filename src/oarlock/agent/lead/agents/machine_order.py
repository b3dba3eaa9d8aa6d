"""Which machine holds which seat, in the order of their arrival at the leading agent.

The machine that came last holds the seat, and one that was replaced never returns: it would be a zombie, a
pod that Kubernetes gave up and that lives on. Arrivals decide because clocks cannot: a lost node's may be
ahead. A zombie that was never seen before takes the seat once; the pod that it displaces is replaced by
Kubernetes, and that one arrives last. The order is kept beside the record, for the leader that follows.
"""

from __future__ import annotations

from pathlib import Path

_MOST = 100_000  # machines in the life of a run


class MachineOrder:
    """Reads the arrivals that earlier leaders wrote to `file`, and adds to them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._machines: dict[str, list[str]] = {}  # seat -> who had it, the last one has it
        self._count = 0
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        for words in map(str.split, lines):
            if len(words) == 2:
                self._add(*words)

    def take(self, seat: str, machine: str) -> str | None:
        """Give the seat to this machine. None, or why not."""
        machines = self._machines.get(seat, [])
        if machine in machines[-1:]:
            return None
        if machine in machines:
            return f"another machine has taken the place of {seat}"
        if self._count >= _MOST:
            return f"{_MOST} machines have joined this run already"
        self._add(seat, machine)
        try:
            with self._file.open("a") as file:
                file.write(f"{seat} {machine}\n")
        except OSError:
            pass  # only a leader that follows this one misses it
        return None

    def _add(self, seat: str, machine: str) -> None:
        self._machines.setdefault(seat, []).append(machine)
        self._count += 1
