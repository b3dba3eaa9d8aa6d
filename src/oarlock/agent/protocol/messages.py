"""The only module that reads and checks messages of strangers, members, clients and tasks. Pure.

Each function takes parsed JSON and returns a typed message, or raises WireError: then the connection is
closed, or the line dropped. Members hold the token and tasks are the user's, but either may be broken,
hostile or of another version. Unknown fields are ignored; numbers and texts have bounds. Each part of a
message has a `from_data` next to its type: `status`, `outcome`, `gates`, and `wishes` for messages of a
leading agent.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import NamedTuple

from oarlock.agent.protocol import checked_events, wire
from oarlock.agent.protocol import checked_fields as checked
from oarlock.agent.protocol.gates import GATE_EVENTS
from oarlock.agent.protocol.host_status import Status
from oarlock.agent.protocol.wire import VERSION, Message, OtherVersionError, WireError
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.run_events import Event
from oarlock.system.safe_names import stays_inside

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}", re.ASCII)  # no folder, and nothing hidden
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_MOST_FILES = 20_000  # per program
_MOST_GPUS = 64  # per machine
_OF_MEMBERS = (
    *("ready", "never_ready", "alive", "task", "report", "gpu", "error", "note", "warning", "checkpoint"),
)
IMPORTED = "imported"  # modules that a task has imported and the zygote has not: a restart needs them, too
GPUS = "gpus"  # GPUs that a task has opened, and its next process will; none: it is done
FOLLOW = "follow"  # an evaluator waits for checkpoints from now on: part of the status
_OF_TASKS = ("report", "error", "note", "warning", "checkpoint")
FOLDER_EVENTS = ("made", "await")  # what a task sends about a folder that is made once; never in the record


@dataclass(frozen=True)
class Hello:
    """An agent introduces itself."""

    name: str  # its seat's name
    uid: str  # unique to this process
    machine: str  # stays the same when its container restarts
    host: str

    def to_data(self) -> Message:
        """Return it as JSON data, for `wire.greeting`."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Message) -> Hello:
        """Read an agent's introduction. Raises WireError."""
        return cls(
            name=checked.text(data, "name"),
            uid=checked.text(data, "uid", _ID),
            machine=checked.text(data, "machine", _ID),
            host=checked.text(data, "host", _HOST),
        )


@dataclass(frozen=True)
class FirstFrame:
    """The first frame of an agent or a client."""

    nonce: str
    hello: Hello | None  # None: this is a client, which asks


@dataclass(frozen=True)
class Said:
    """One frame from a member."""

    events: tuple[Event, ...]
    status: Status | None
    bye: str | None


@dataclass(frozen=True)
class Question:
    """A client's question. A field that is missing or of another type is None, and the answer says so."""

    ask: str
    name: str | None = None  # checkpoint
    workers: int | None = None  # scale
    do: str | None = None  # fault, as all fields below
    task: str | None = None
    pod: str | None = None
    seconds: float | None = None
    generation: int | None = None


class OfferedFile(NamedTuple):
    """A file of the leader's data. A folder without files ends in `/`."""

    name: str
    size: int
    modified: int  # nanoseconds
    mode: int


@dataclass(frozen=True)
class OfferedData:
    """What the leader reports about its data."""

    state: str  # preparing, ready, or each: every machine has to prepare its own
    why: str
    files: tuple[OfferedFile, ...]


# Greetings


def challenge(data: Message) -> str:
    """Read the nonce in the coordinator's first frame, after a check of its version."""
    _check_version(data)
    return checked.text(data, "challenge", _NONCE)


def greeting(data: Message) -> FirstFrame:
    """Read the first frame of an agent or a client, after a check of its version."""
    _check_version(data)
    hello = checked.json_object(data.get("hello"), "hello")
    nonce = checked.text(data, "nonce", _NONCE)
    return FirstFrame(nonce, None if hello.get("client") is True else Hello.from_data(hello))


def _check_version(data: Message) -> None:
    version = checked.whole(data, "version") if "version" in data else 1  # version 1 did not send it
    if version != VERSION:
        raise OtherVersionError(version)


# Members


def said(data: Message) -> Said:
    """Read a later frame of an agent. A heartbeat has none of the fields."""
    return Said(
        events=tuple(
            checked_events.event(one, _OF_MEMBERS)
            for one in checked.json_list(data.get("events", []), "events")
        ),
        status=Status.from_data(data["status"]) if "status" in data else None,
        bye=checked.free_text(data.get("bye")),
    )


# Clients


def question(data: Message) -> Question:
    """Read a client's question. Only `ask` is required."""
    return Question(
        ask=checked.text(data, "ask"),
        name=checked.free_text(data.get("name")),
        workers=checked.or_none(data, "workers", checked.whole),
        do=checked.free_text(data.get("do")),
        task=checked.free_text(data.get("task")),
        pod=checked.free_text(data.get("pod")),
        seconds=checked.or_none(data, "seconds", checked.number),
        generation=checked.or_none(data, "generation", checked.whole),
    )


def names(data: Message) -> list[str]:
    """Read the names of checkpoints."""
    return checked.names(data.get("names"), "names")


def files(data: Message) -> list[tuple[str, int]]:
    """Read which files of a checkpoint follow, with their sizes."""
    found = []
    for one in checked.json_list(data.get("files"), "files"):
        file, size = one if isinstance(one, list) and len(one) == 2 else (None, None)
        if not isinstance(file, str) or _FILE.fullmatch(file) is None or type(size) is not int or size < 0:
            raise WireError("not a valid file entry")
        found.append((file, size))
    return found


def program_files(data: Message) -> list[tuple[str, int, int]]:
    """Read which files a program has written next to itself: name, size, time in nanoseconds."""
    found = []
    for one in checked.json_list(data.get("files"), "files", _MOST_FILES):
        name, size, modified = one if isinstance(one, list) and len(one) == 3 else (None, None, None)
        if not isinstance(name, str) or not stays_inside(name) or type(size) is not int or size < 0:
            raise WireError("not a valid file entry")
        if type(modified) is not int or not 0 <= modified < 2**63:
            raise WireError("a file without a proper time")
        found.append((name, size, modified))
    return found


def offered_data(data: Message) -> OfferedData:
    """Read which files make up the leader's data."""
    found = []
    for one in checked.json_list(data.get("files"), "files", _MOST_FILES):
        name, *numbers = checked.json_list(one, "a file") or [None]
        if not isinstance(name, str) or not stays_inside(name.removesuffix("/")):
            raise WireError("not a valid file entry")
        if len(numbers) != 3 or not all(type(each) is int and 0 <= each < 2**63 for each in numbers):
            raise WireError("a file without a proper size, time and mode")
        size, modified, mode = numbers
        found.append(OfferedFile(name, size, modified, mode & 0o777))
    return OfferedData(checked.text(data, "state"), checked.free_text(data.get("why")) or "", tuple(found))


# Tasks


def task_event(line: bytes, task: str, now: float) -> Event:
    """Read a task's line: an event for the record, a message about its gate (GATE_EVENTS) or a folder that is
    made once (FOLDER_EVENTS), FOLLOW, IMPORTED, or GPUS."""
    data = checked.json_object(wire.parse(line), "event")
    if data.get("kind") in FOLDER_EVENTS:
        return {"kind": data["kind"], "folder": checked.text(data, "folder", checked.FOLDER)}
    if data.get("kind") in GATE_EVENTS:
        return _gate_event(data)
    if data.get("kind") == FOLLOW:
        return {"kind": FOLLOW}
    if data.get("kind") == IMPORTED:
        found = checked.json_list(data.get("modules"), "modules")
        return {"kind": IMPORTED, "modules": [name for name in found if isinstance(name, str)]}
    if data.get("kind") == GPUS:
        found = checked.json_list(data.get("gpus"), "gpus")
        return {"kind": GPUS, "gpus": [one for one in found if type(one) is int and 0 <= one < _MOST_GPUS]}
    t = checked.or_none(data, "t", checked.number)
    event = {**data, "task": task, "t": now if t is None or not 0 <= t <= now else t}
    return checked_events.event(event, _OF_TASKS)


def _gate_event(data: Message) -> Event:
    if data["kind"] == "ask":
        return {"kind": "ask", "purpose": checked.text(data, "purpose")}
    if data["kind"] == "gate":
        return {"kind": "gate", "loop": checked.whole(data, "loop")}
    return {
        "kind": "at",
        "loop": checked.whole(data, "loop"),
        "meeting": checked.whole(data, "meeting"),
        "step": checked.step(data),
    }
