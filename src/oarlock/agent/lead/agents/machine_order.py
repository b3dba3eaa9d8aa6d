"""Which machine holds which seat, in the order in which machines joined the leading agent.

The newest arrival holds the seat. A replaced machine never gets it back: it would be a zombie, a pod that
Kubernetes gave up but that still runs. Arrivals decide because clocks cannot: a lost node's clock may be
ahead. A zombie that was never seen before takes the seat once; Kubernetes replaces the pod that it displaces,
and the replacement arrives last. The order is stored next to the record, for the next leader.
"""

from __future__ import annotations

from pathlib import Path

_MOST = 100_000  # machines in one run


class MachineOrder:
    """Reads the arrivals that earlier leaders wrote to `file`, and appends new ones."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._machines: dict[str, list[str]] = {}  # seat -> machines that held it; the last holds it now
        self._count = 0
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        for words in map(str.split, lines):
            if len(words) == 2:
                self._add(*words)

    def take(self, seat: str, machine: str) -> str | None:
        """Give the seat to this machine. Returns None, or the reason for a refusal."""
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
            pass  # only the next leader misses it
        return None

    def _add(self, seat: str, machine: str) -> None:
        self._machines.setdefault(seat, []).append(machine)
        self._count += 1
