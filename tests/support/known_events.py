"""An event of each kind, as agents write them, without its time."""

from __future__ import annotations

from typing import Any

STARTED = {"kind": "task", "task": "worker-0", "state": "started", "pid": 11}
KNOWN: list[dict[str, Any]] = [
    {"kind": "run", "job": "mnist", "engine": "local", "tasks": ["worker-0", "worker-1"], "version": 1},
    {"kind": "agent", "pid": 7, "host": "here"},
    {"kind": "ready", "seconds": 1.5, "warm": True, "modules": ["torch"], "keeper": 3, "keep": 600.0},
    {"kind": "image", "image": "python:3", "digest": "sha256:0"},
    {"kind": "generation", "generation": 1, "tasks": ["worker-0", "worker-1"]},
    STARTED,
    {"kind": "report", "task": "worker-0", "step": 3, "total": 9, "busy": 0.5, "loss": 0.5},
    {"kind": "gpu", "task": "worker-0", "memory": 4, "memory_total": 9, "power": 612.5, "utilization": 0.97},
    {"kind": "error", "task": "worker-0", "type": "ValueError", "message": "no", "where": "train.py:3"},
    {"kind": "checkpoint", "seconds": 0.1, "task": "worker-0", "step": 3},
    {"kind": "snapshot", "name": "step-3", "bytes": 12},
    {"kind": "task", "task": "worker-0", "state": "ended", "code": 137, "ours": True},
    {"kind": "restart", "task": "worker-0", "reason": "no", "left": 2, "forgiven": False, "alone": True},
    {"kind": "scale", "workers": 2},
    {"kind": "note", "text": "something"},
    {"kind": "warning", "task": "worker-0", "text": "each trains alone", "fix": "join"},
    {"kind": "problem", "text": "no room", "fix": "make some"},
    {"kind": "stop", "reason": "asked"},
    {"kind": "end", "state": "failed", "code": 1, "task": "worker-0", "reason": "no"},
]
