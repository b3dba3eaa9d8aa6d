"""Every text that a record, a job or a command line can hold, full of control characters: none of them
arrives at the terminal, whatever the verb."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.checkpoints.manifest import seal
from oarlock.records.run_folder import RunFolder
from tests.support.terminals import OpenTerminal

# The screen, the title, a link, the clipboard, C1, a bell, bidi, what draws over a line, a line of its own.
EVIL = (
    "A\x1b[2J\x1b]0;title\x07\x1b]8;;http://x\x1b\\B\x1b]8;;\x1b\\\x1b]52;c;aGk=\x07\x9b31m\x9d0;C\x9c"
    "\x07\u202e\u2066\u200f\u061cD\rE\b\x7f\nF"
)
NAME = EVIL.replace("/", "|")  # of a file
# What click and rich draw with: styles, the cursor of a display and its lines.
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r(?=\x1b\[)|\r\n")
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
RESUMED: dict[str, object] = {"kind": "agent", "pid": 1, "host": EVIL}
EVENTS: list[dict[str, object]] = [
    {"kind": "run", "job": EVIL, "engine": EVIL, "tasks": ["worker-0", EVIL]},
    RESUMED,
    {"kind": "ready", "modules": [EVIL], "seconds": 1, "on": EVIL, "keeper": EVIL, "keep": 1},
    {"kind": "generation", "generation": 1, "tasks": ["worker-0", EVIL]},
    {"kind": "task", "task": EVIL, "state": "started", "pid": EVIL},
    {"kind": "task", "task": "worker-0", "state": "started", "pid": 2},
    {"kind": "report", "task": "worker-0", "step": 1, "total": 2, EVIL: EVIL, "loss": EVIL},
    {"kind": "error", "task": EVIL, "type": EVIL, "message": EVIL, "where": f"{EVIL}:1"},
    {
        "kind": "restart",
        "task": EVIL,
        "reason": EVIL,
        "type": EVIL,
        "message": EVIL,
        "where": EVIL,
        "left": EVIL,
    },
    {"kind": "snapshot", "name": EVIL},
    {"kind": "note", "text": EVIL},
    {"kind": "problem", "text": EVIL, "fix": EVIL},
    {"kind": "stop", "reason": EVIL},
    {"kind": EVIL, EVIL: EVIL},
]
VERDICT: dict[str, object] = {
    "kind": "end",
    "state": "failed",
    "code": EVIL,
    "reason": EVIL,
    "task": "worker-0",
    "type": EVIL,
    "message": EVIL,
    "where": f"{EVIL}:3",
    "refusal": EVIL,
}
LOST: dict[str, object] = {"kind": "end", "state": EVIL, "code": 1, "reason": EVIL}


@pytest.fixture
def records(home: Path) -> Path:
    """A run that failed, one with a failure that names no task, and one that is running."""
    _write(home, "failed", [*EVENTS, VERDICT])
    _write(home, "ended", [*EVENTS, LOST])
    _write(home, NAME[:80], [*EVENTS, {**VERDICT, "task": EVIL}])
    _write(home, "running", EVENTS)
    return home


@pytest.fixture
def held(records: Path) -> Iterator[RunFolder]:
    run = RunFolder(records / "runs" / "running")
    lock = run.hold()
    yield run
    os.close(lock)


LOOKING = [
    *(
        ["ps"],
        ["ps", "--all", "--json"],
        ["status", "failed"],
        ["status", "ended"],
        ["status", "failed", "--json"],
    ),
    *(["events", "failed"], ["events", "ended", "--json"], ["status", NAME[:80]], ["stop", NAME[:80]]),
    *(["logs", "failed", "--timestamps"], ["logs", "failed", "--json"], ["logs", "failed", "--failed"]),
    *(["logs", NAME[:80]], ["attach", "failed"], ["attach", "ended"], ["attach", "failed", "--json"]),
    *(["checkpoints", "failed"], ["checkpoints", "failed", "--json"], ["checkpoints", "failed", "--verify"]),
    *(["pull", NAME[:80]], ["stacks", NAME[:80]], ["scale", NAME[:80], "2"], ["scale", "failed", EVIL]),
    *(["exec", "failed", "--task", EVIL, "--", "true"], ["chaos", NAME[:80]], ["chaos", "--kinds", EVIL]),
    *([EVIL], ["ps", f"--{EVIL}"], ["status", EVIL], ["logs", "--tail", EVIL], ["logs", "--since", EVIL]),
    *(["run", f"./{NAME}"], ["run", "--set", EVIL], ["run", "--dry-run", "job.yaml"], ["render", "job.yaml"]),
    *(["plan", "job.yaml"], ["init", "--stdout", NAME], ["inspect", EVIL], ["tensorboard", EVIL]),
    *(["delete", EVIL], ["run", "--dry-run", "wrong.yaml"], ["doctor", "--on", EVIL]),
]


def test_no_verb_shows_a_control_character(terminal: OpenTerminal, records: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text(
        json.dumps({"program": "train.py", "args": [EVIL], "env": {"EVIL": EVIL}})
    )
    (tmp_path / "wrong.yaml").write_text(
        json.dumps({"program": "train.py", "roles": {EVIL: EVIL}, EVIL: EVIL})
    )
    for start in range(0, len(LOOKING), 8):  # each waits mostly for its imports
        some = [(words, terminal(*words)) for words in LOOKING[start : start + 8]]
        for words, screen in some:
            screen.end()
            assert screen.shown.strip(), words
            _check(words, screen.shown)
            assert "Traceback" not in screen.shown.replace("Traceback (most recent call last)\\n", ""), words


def test_nor_does_the_live_display(terminal: OpenTerminal, held: RunFolder) -> None:
    screen = terminal("attach", "running", columns=1000)
    screen.until("1 restart")
    with (held.path / "events.jsonl").open("a") as file:  # as it happens, and not only what there was
        file.writelines(json.dumps({"t": time.time(), **event}) + "\n" for event in [*EVENTS[1:], VERDICT])
    with (held.path / "logs" / "1" / "worker-0.log").open("a") as file:
        file.write(f"2026-01-01T00:00:00.000000Z \x1b[32m{EVIL[:-2]} news\n")
    screen.until("news")
    screen.until("restarted 1x")
    screen.type("\x03")
    screen.end()
    _check(["attach"], screen.shown)


def test_nor_do_followed_logs_and_events(terminal: OpenTerminal, held: RunFolder) -> None:
    screens = [terminal(verb, "running", "-f") for verb in ("logs", "events")]
    for screen, seen in zip(screens, ("later", "checkpoint")):
        with (held.path / "logs" / "1" / "worker-0.log").open("a") as file:
            file.write("2026-01-01T00:00:00.000000Z later\n")
        with (held.path / "events.jsonl").open("a") as file:
            file.write(json.dumps({"t": time.time(), "kind": "checkpoint", "seconds": 1}) + "\n")
        screen.until(seen)
        screen.type("\x03")
        screen.end()
        _check(["-f"], screen.shown)


def _check(words: list[str], shown: str) -> None:
    left = OURS.sub("", shown)
    found = CONTROL.search(left)
    assert found is None, f"{words}: {left[max(0, found.start() - 60) : found.end() + 60]!r}"


def _write(home: Path, name: str, events: list[dict[str, object]]) -> None:
    folder = home / "runs" / name
    (folder / "logs" / "1").mkdir(parents=True)
    (folder / "job.yaml").touch()
    folders = {kind: str(folder / kind) for kind in ("data", "checkpoints", "model", "logs")}
    program = Program("program", EVIL, [EVIL])
    spec = Spec(name, str(folder), EVIL, program, {"worker": 1}, folders, env={EVIL: EVIL}, job=EVIL)
    (folder / "agent.json").write_text(spec.to_json())
    told = [json.dumps({"t": time.time(), **event}) + "\n" for event in events]
    (folder / "events.jsonl").write_text("".join(told))
    for task in ("worker-0", NAME):
        text = f"2026-01-01T00:00:00.000000Z Error {EVIL}"
        (folder / "logs" / "1" / f"{task}.log").write_text(text.replace("\n", "\r") + "\n")
    checkpoint = folder / "checkpoints" / "step-0000000001-g1"
    checkpoint.mkdir(parents=True)
    manifest = {
        "format": 1,
        "step": 1,
        "generation": 1,
        "run": EVIL,
        "time": 1.0,
        "world": EVIL,
        "epoch": EVIL,
    }
    manifest |= {"metrics": {EVIL: EVIL}, "files": {EVIL: {"size": 1, "crc32": EVIL}}}
    (checkpoint / "manifest.json").write_text(json.dumps({"manifest": manifest, "crc32": seal(manifest)}))
    shutil.copytree(checkpoint, checkpoint.with_name(NAME[:60]))
