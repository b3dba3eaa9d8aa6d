"""What an agent is told: the job, resolved for one machine. Written by the client, read once."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Seconds; None is no limit."""

    restarts: int = 3
    stall: float | None = 600.0
    runtime: float | None = None
    rendezvous: float = 300.0
    grace: float = 30.0


@dataclass(frozen=True)
class Program:
    kind: str  # program, module or command
    target: Any  # a path, a module's name, or a list of words
    args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Spec:
    run: str
    folder: str  # the run's record
    cwd: str  # where tasks start
    program: Program
    sizes: dict[str, int]  # tasks per role
    folders: dict[str, str]  # data, checkpoints, model, logs, as the leader sees them
    limits: Limits = field(default_factory=Limits)
    env: dict[str, str] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)  # for the zygote to import
    warm: bool = True
    seed: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        data = json.loads(text)
        data["program"] = Program(**data["program"])
        data["limits"] = Limits(**data["limits"])
        return cls(**data)
