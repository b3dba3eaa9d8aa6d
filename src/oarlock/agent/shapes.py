"""What a message of an agent must look like. A member holds the token, but may still be another version,
or broken: what makes no sense closes its connection and reaches nobody else. Pure."""

from __future__ import annotations

from typing import Any

from oarlock.agent.wire import Message, WireError

_NUMBER = (int, float)
_STATUS = {"generation": int, "cleared": int, "ready": bool, "ports": list, "slots": dict, "tasks": list}
_OUTCOME = {
    "name": str,
    "launch": int,
    "began": _NUMBER,
    "code": (int, type(None)),
    "signal": (int, type(None)),
    "ours": bool,
    "error": (dict, type(None)),
    "failed_at": (*_NUMBER, type(None)),
    "starved": bool,
}
_EVENTS: dict[str, dict[str, Any]] = {
    "ready": {},
    "never_ready": {"text": str},
    "task": {"task": str, "state": str},
    "report": {"task": str},
    "error": {"task": str},
    "note": {"text": str},
    "checkpoint": {"task": str},
}


def status(told: Any) -> Message:
    _check(told, _STATUS, "status")
    if not all(isinstance(port, int) and 0 < port < 65536 for port in told["ports"]):
        raise WireError("a status whose ports are none")
    slots = told["slots"]
    if not all(isinstance(count, int) and 0 <= count <= len(told["ports"]) for count in slots.values()):
        raise WireError("a status whose slots are no counts")
    if sum(slots.values()) > len(told["ports"]):
        raise WireError("a status with more slots than ports")
    for data in told["tasks"]:
        _check(data, _OUTCOME, "task", exactly=True)
    found: Message = told
    return found


def event(told: Any) -> Message:
    _check(told, {"kind": str, "t": _NUMBER}, "event")
    if told["kind"] not in _EVENTS:
        raise WireError(f"an event of unknown kind {told['kind']!r}")
    _check(told, _EVENTS[told["kind"]], told["kind"])
    found: Message = told
    return found


def _check(told: Any, fields: dict[str, Any], what: str, exactly: bool = False) -> None:
    if not isinstance(told, dict):
        raise WireError(f"a {what} that is not an object")
    for name, kind in fields.items():
        value = told.get(name, _MISSING)
        if value is _MISSING or not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise WireError(f"a {what} without a proper {name}")
    if exactly and set(told) - set(fields):
        raise WireError(f"a {what} with fields nobody knows")


_MISSING = object()
