"""The events of a run: their fields, and how they are written and read. Pure; travels into pods.

An event is one flat JSON object: `t` (seconds since the epoch), `kind`, and the fields below.
`run_state` folds them into the state of the run.

    run         job, engine, tasks          the run was created (`version`: of the record; `host`: where)
    agent       pid, host, version          an agent started on the run (again, after --resume)
    ready       seconds, warm, modules      the zygote has imported what the tasks will need (`keeper`: the
                                            process that keeps the imports, for `keep` seconds after the run)
    never_ready text, task?, code?, ...     a machine cannot run tasks
    alive                                   a task reports, prints or computes; never recorded
    generation  generation, tasks           a gang forms
    tasks       tasks                       the current tasks: those of a server come and go
    task        task, state, pid | code     a task started or ended (`code`: its own, or 128+n for signal n)
    report      task, step, total?, busy?, ...  progress as the program reports it; `busy`: the share of its
                                            time in which the task does not wait for the others; `observed`:
                                            which hook saw it, if the program itself reports nothing
                                            (`more`: its training continues)
    gpu         task, memory, memory_total, power?, utilization?  the readings of a task's GPUs, as its agent
                                            reads them: bytes, watts, 0 to 1 (`gpus`: their numbers)
    error       task, type, message, where  the exception that ended a task
    restart     task, reason, left          a generation failed and the next one follows (`forgiven`: it does
                                            not count as a failure; `alone`: only this task restarts)
    scale       workers                     the number of workers that the run should have from now on
    checkpoint  seconds, task?, step?       a checkpoint was taken; training paused for that many seconds
    snapshot    name, bytes                 a checkpoint, or the model, was uploaded to the snapshots
    logs        text                        the program itself writes files for TensorBoard to LOG_DIR
    note        text                        one line for the reader
    warning     task, text, fix?            what is wrong with the program although it runs, once
    problem     text?, fix?                 what keeps a run from progressing; neither: it is resolved
    image       image, digest               the exact image of a pod, once per digest
    stop        reason                      the run was asked to end
    end         state, code, reason, task?  the verdict
"""

from __future__ import annotations

import json
from typing import Any

from oarlock.run.accounting import LATEST
from oarlock.run.typed import Check, flag, number, plain, several, text, whole, word

Event = dict[str, Any]


_COUNT, _SECONDS, _CODE = whole(0), number(0), whole(-(2**31), 2**31)
_ALWAYS: dict[str, Check] = {"task": word, "generation": _COUNT}
_WHY: dict[str, Check] = {"reason": text, "type": text, "message": text, "where": text, "refusal": text}
_WRITER: dict[str, Check] = {"host": text, "version": whole(1)}
_CHECKS: dict[str, dict[str, Check]] = {
    "run": {"job": text, "engine": text, "tasks": several(word), **_WRITER},
    "agent": {"pid": _COUNT, **_WRITER},
    "ready": {
        "seconds": _SECONDS,
        "warm": flag,
        "modules": several(text),
        "keeper": _COUNT,
        "keep": _SECONDS,
        "on": text,
    },
    "never_ready": {**_WHY, "text": text, "code": _CODE},
    "alive": {},
    "image": {"image": text, "digest": text},
    "generation": {"tasks": several(word)},
    "tasks": {"tasks": several(word)},
    "task": {"state": word, "pid": _COUNT, "code": _CODE, "ours": flag},
    "report": {"step": whole(), "total": whole(), "busy": number(0, 1), "observed": word, "more": flag},
    "gpu": {
        "gpus": several(text),
        "memory": _COUNT,
        "memory_total": _COUNT,
        "power": number(0),
        "utilization": number(0, 1),
    },
    "error": _WHY,
    "restart": {**_WHY, "left": _COUNT, "forgiven": flag, "alone": flag, "doubled": flag},
    "scale": {"workers": _COUNT},
    "checkpoint": {"seconds": _SECONDS, "step": whole()},
    "snapshot": {"name": text, "bytes": _COUNT},
    "logs": {"text": text},
    "note": {"text": text},
    "warning": {"text": text, "fix": text},
    "problem": {"text": text, "fix": text},
    "stop": {"reason": text},
    "end": {**_WHY, "state": word, "code": _CODE},
}
_REQUIRED: dict[str, tuple[str, ...]] = {
    "never_ready": ("text",),
    "image": ("image", "digest"),
    "generation": ("generation",),
    "tasks": ("tasks",),
    "task": ("task", "state"),
    "report": ("task",),
    "gpu": ("task", "memory", "memory_total"),
    "error": ("task",),
    "note": ("text",),
    "warning": ("task", "text"),
    "end": ("state",),
}


def encode(event: Event) -> str:
    """Write an event as one line. Numbers that JSON does not know (nan, inf) become text."""
    return json.dumps(plain(event), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def decode(line: str) -> Event | None:
    """Read the event on a line. Returns None if there is none: a torn last line is not an error."""
    try:
        return read(json.loads(line))
    except (ValueError, RecursionError):
        return None


def read(data: Any) -> Event | None:
    """Check an event from outside: RunState accepts whatever this returns. None if it makes no sense. Bad
    values of optional fields are left out; kinds and fields of a later version stay."""
    if not isinstance(data, dict):
        return None
    kind, t = word(data.get("kind")), number(0, LATEST)(data.get("t"))
    if kind is None or t is None:
        return None
    event: Event = {"t": t, "kind": kind}
    checks = {**_ALWAYS, **_CHECKS.get(kind, {})}
    for field_name, value in data.items():
        if field_name in event:
            continue
        kept = checks.get(field_name, plain)(value)
        if kept is not None or field_name not in checks:
            event[plain(field_name)] = kept
    return event if all(needed in event for needed in _REQUIRED.get(kind, ())) else None
