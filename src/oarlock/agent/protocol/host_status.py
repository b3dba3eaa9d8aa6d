"""What a host reports about its machine: the answer to a wish, sent again whenever it changes. Pure."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from oarlock.agent.protocol import checked_fields as checked
from oarlock.agent.protocol.gates import Whereabouts
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.wire import Message, WireError
from oarlock.run.quick_dataclass import dataclass


@dataclass(frozen=True)
class Status:
    """One host: the newest generation it knows of, its slots, and its tasks."""

    generation: int
    cleared: int  # no process of this generation, or of an earlier one, is left
    ready: bool
    ports: tuple[int, ...]
    slots: dict[str, int]
    tasks: tuple[Outcome, ...] = ()
    gates: dict[str, Whereabouts] = field(default_factory=dict)
    preparing: bool = False  # it is still preparing its data, so it is not ready, however long that takes
    made: frozenset[str] = frozenset()  # the folders that the leader task has made for all tasks
    leaving: bool = False  # this machine was asked to leave: it accepts no more tasks

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {
            "generation": self.generation,
            "cleared": self.cleared,
            "ready": self.ready,
            "ports": list(self.ports),
            "slots": self.slots,
            "tasks": [outcome.to_data() for outcome in self.tasks],
            "gates": {name: gate.to_data() for name, gate in self.gates.items()},
            "preparing": self.preparing,
            "made": sorted(self.made),
            "leaving": self.leaving,
        }

    @classmethod
    def from_data(cls, data: Any) -> Status:
        """Read a host's status. Raises WireError, also if it contradicts itself."""
        message = checked.json_object(data, "status")
        ports = tuple(checked.json_list(message.get("ports"), "ports"))
        if not all(type(port) is int and 0 < port < 65536 for port in ports):
            raise WireError("a status without valid ports")
        slots = checked.counts(message.get("slots"), "slots")
        if sum(slots.values()) > len(ports):
            raise WireError("a status with more slots than ports")
        gates = checked.json_object(message.get("gates", {}), "gates")
        return cls(
            generation=checked.whole(message, "generation"),
            cleared=checked.whole(message, "cleared"),
            ready=checked.flag(message, "ready"),
            ports=ports,
            slots=slots,
            tasks=tuple(map(Outcome.from_data, checked.json_list(message.get("tasks"), "tasks"))),
            gates={checked.name_of(name): Whereabouts.from_data(gate) for name, gate in gates.items()},
            preparing=checked.flag(message, "preparing") if "preparing" in message else False,
            made=checked.folders(message.get("made", [])),
            leaving=checked.flag(message, "leaving") if "leaving" in message else False,
        )
