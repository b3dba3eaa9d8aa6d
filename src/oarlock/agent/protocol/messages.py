"""Whatever a stranger, a member, a client or a task says is read here, and nowhere else. Pure.

Each function takes what JSON gave and returns a typed message, or raises WireError: then the connection is
closed, or the line dropped. Members hold the token and tasks are the user's, but either may be broken,
hostile or of another version. Fields that nobody knows are ignored; numbers and texts have bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from oarlock.agent.protocol import wire
from oarlock.agent.protocol.gates import GATE_EVENTS, Whereabouts
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.wire import VERSION, Message, OtherVersionError, WireError
from oarlock.run import events
from oarlock.run.events import Event

MOST = 2**53  # of any whole number: what JSON, and a float, hold exactly
_TEXT = 16 * 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}", re.ASCII)  # no folder, and nothing hidden
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SIGNALS = 64
_METRIC, _METRIC_VALUE = 100, 1000  # characters
_FIELDS = frozenset({"text", "message", "where", "type", "modules"})  # that may be longer
_MANY = 10_000  # tasks, ports or events in one message
_OF_MEMBERS = ("ready", "never_ready", "task", "report", "error", "note", "checkpoint")
_OF_TASKS = ("report", "error", "note", "checkpoint")

T = TypeVar("T")


@dataclass(frozen=True)
class Hello:
    """An agent introduces itself."""

    name: str  # of its seat
    uid: str  # of this process
    machine: str  # the same when its container starts again
    host: str


@dataclass(frozen=True)
class Greeting:
    nonce: str
    hello: Hello | None  # None: a client, who asks


@dataclass(frozen=True)
class Status:
    """What a host says about its machine."""

    generation: int
    cleared: int
    ready: bool
    ports: tuple[int, ...]
    slots: dict[str, int]
    tasks: tuple[Outcome, ...] = ()
    gates: dict[str, Whereabouts] = field(default_factory=dict)
    leaving: bool = False  # it was asked to go

    def to_data(self) -> Message:
        return asdict(self)


@dataclass(frozen=True)
class Said:
    """One frame of a member."""

    events: tuple[Event, ...]
    status: Status | None
    bye: str | None


@dataclass(frozen=True)
class Question:
    """A client's. A field that is missing or of another type is None: who answers says what is wrong."""

    ask: str
    name: str | None = None  # checkpoint
    workers: int | None = None  # scale
    do: str | None = None  # fault, and all below
    task: str | None = None
    pod: str | None = None
    seconds: float | None = None
    generation: int | None = None


# Greetings


def challenge(told: Message) -> str:
    _check_version(told)
    return _text(told, "challenge", _NONCE)


def greeting(told: Message) -> Greeting:
    _check_version(told)
    hello = _object(told.get("hello"), "hello")
    nonce = _text(told, "nonce", _NONCE)
    if hello.get("client") is True:
        return Greeting(nonce, None)
    return Greeting(
        nonce,
        Hello(
            name=_text(hello, "name", _NAME),
            uid=_text(hello, "uid", _ID),
            machine=_text(hello, "machine", _ID),
            host=_text(hello, "host", _HOST),
        ),
    )


def _check_version(told: Message) -> None:
    version = _whole(told, "version") if "version" in told else 1  # which did not say
    if version != VERSION:
        raise OtherVersionError(version)


# Members


def said(told: Message) -> Said:
    return Said(
        events=tuple(event(one, _OF_MEMBERS) for one in _list(told.get("events", []), "events")),
        status=status(told["status"]) if "status" in told else None,
        bye=_free_text(told.get("bye")),
    )


def status(data: Any) -> Status:
    told = _object(data, "status")
    ports = tuple(_list(told.get("ports"), "ports"))
    if not all(type(port) is int and 0 < port < 65536 for port in ports):
        raise WireError("a status whose ports are none")
    slots = {_name(role): count for role, count in _object(told.get("slots"), "slots").items()}
    if not all(type(count) is int and 0 <= count <= len(ports) for count in slots.values()):
        raise WireError("a status whose slots are no counts")
    if sum(slots.values()) > len(ports):
        raise WireError("a status with more slots than ports")
    return Status(
        generation=_whole(told, "generation"),
        cleared=_whole(told, "cleared"),
        ready=_flag(told, "ready"),
        ports=ports,
        slots=slots,
        tasks=tuple(map(outcome, _list(told.get("tasks"), "tasks"))),
        gates={_name(name): gate(one) for name, one in _object(told.get("gates", {}), "gates").items()},
        leaving=_flag(told, "leaving") if "leaving" in told else False,
    )


def outcome(data: Any) -> Outcome:
    told = _object(data, "task")
    number = _optional(told, "signal", _whole)
    if number is not None and not 0 < number <= _SIGNALS:
        raise WireError("a task with a signal that is none")
    error = told.get("error")
    return Outcome(
        name=_text(told, "name", _NAME),
        launch=_whole(told, "launch"),
        began=_number(told, "began"),
        code=_optional(told, "code", _code),
        signal=number,
        ours=_flag(told, "ours"),
        error=None if error is None else _error(_object(error, "error")),
        failed_at=_optional(told, "failed_at", _number),
        starved=_flag(told, "starved") if "starved" in told else False,
    )


def gate(data: Any) -> Whereabouts:
    told = _object(data, "gate")
    return Whereabouts(
        loop=_whole(told, "loop"),
        asks=_whole(told, "asks"),
        meeting=_whole(told, "meeting"),
        step=_step(told),
    )


def event(data: Any, kinds: tuple[str, ...]) -> Event:
    found = events.read(data)
    if found is None or found["kind"] not in kinds:
        raise WireError("an event that is none")
    return {name: value for name, value in found.items() if name in _FIELDS or _is_small(name, value)}


def _is_small(name: str, value: Any) -> bool:
    """A metric, or a field of a later version: `events` has checked all others, text by text."""
    return len(name) <= _METRIC and (
        not isinstance(value, (str, list, dict)) or len(str(value)) <= _METRIC_VALUE
    )


# Clients, and what a leading agent wants


def question(told: Message) -> Question:
    return Question(
        ask=_text(told, "ask", _NAME),
        name=_free_text(told.get("name")),
        workers=_or_none(told, "workers", _whole),
        do=_free_text(told.get("do")),
        task=_free_text(told.get("task")),
        pod=_free_text(told.get("pod")),
        seconds=_or_none(told, "seconds", _number),
        generation=_or_none(told, "generation", _whole),
    )


def files(told: Message) -> list[tuple[str, int]]:
    """Those of a checkpoint that follow, and their sizes."""
    found = []
    for one in _list(told.get("files"), "files"):
        file, size = one if isinstance(one, list) and len(one) == 2 else (None, None)
        if not isinstance(file, str) or _FILE.fullmatch(file) is None or type(size) is not int or size < 0:
            raise WireError("a file that is none")
        found.append((file, size))
    return found


def wish(data: Any) -> Message:
    """The leading agent has shown the token and seals what it says: only the frame of it is looked at."""
    told = _object(data, "wish")
    _text(told, "do", _NAME)
    _whole(told, "generation")
    return told


# Tasks


def task_event(line: bytes, task: str, now: float) -> Event:
    """What a task wrote on its line: an event for the record, or a word of its gate (GATE_EVENTS)."""
    told = _object(wire.parse(line), "event")
    if told.get("kind") in GATE_EVENTS:
        return _gate_word(told)
    t = _or_none(told, "t", _number)
    return event({**told, "task": task, "t": now if t is None or not 0 <= t <= now else t}, _OF_TASKS)


def _gate_word(told: Message) -> Event:
    if told["kind"] == "ask":
        return {"kind": "ask", "purpose": _text(told, "purpose", _NAME)}
    if told["kind"] == "gate":
        return {"kind": "gate", "loop": _whole(told, "loop")}
    return {
        "kind": "at",
        "loop": _whole(told, "loop"),
        "meeting": _whole(told, "meeting"),
        "step": _step(told),
    }


# Values


def _object(value: Any, what: str) -> Message:
    if not isinstance(value, dict) or len(value) > _MANY:
        raise WireError(f"{what} that is no object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MANY:
        raise WireError(f"{what} that are no list")
    return value


def _text(told: Message, name: str, form: re.Pattern[str]) -> str:
    value = told.get(name)
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise WireError(f"a message without a proper {name}")
    return value


def _name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise WireError("a name that is none")
    return value


def _free_text(value: Any) -> str | None:
    """Of bounded length; half a surrogate pair has no UTF-8."""
    return value[:_TEXT].encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _flag(told: Message, name: str) -> bool:
    value = told.get(name)
    if not isinstance(value, bool):
        raise WireError(f"a message without a proper {name}")
    return value


def _whole(told: Message, name: str) -> int:
    value = told.get(name)
    if type(value) is not int or not 0 <= value <= MOST:
        raise WireError(f"a message without a proper {name}")
    return value


def _step(told: Message) -> int | None:
    """None: in no loop. That has to be said."""
    value = told.get("step", "missing")
    if value is not None and (type(value) is not int or not -MOST <= value <= MOST):
        raise WireError("a message without a proper step")
    return value


def _code(told: Message, name: str) -> int:
    """As a shell has it."""
    value = _whole(told, name)
    if value > 255:
        raise WireError(f"a message without a proper {name}")
    return value


def _number(told: Message, name: str) -> float:
    value = told.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:  # nan
        raise WireError(f"a message without a proper {name}")
    return float(value)


def _optional(told: Message, name: str, read: Callable[[Message, str], T]) -> T | None:
    return None if told.get(name) is None else read(told, name)


def _or_none(told: Message, name: str, read: Callable[[Message, str], T]) -> T | None:
    try:
        return read(told, name)
    except WireError:
        return None


def _error(told: Message) -> dict[str, str | None]:
    return {name: _free_text(told.get(name)) for name in ("type", "message", "where")}
