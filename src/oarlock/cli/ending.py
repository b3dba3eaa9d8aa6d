"""The last lines of a run: what came of it, at most ten lines. The end of a failed run is the last on the screen."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from oarlock import watch
from oarlock.cli.output import duration, plural
from oarlock.cli.telling import exit_code, first_line
from oarlock.cli.terminal import resolve
from oarlock.events import Failure, RunState
from oarlock.runs import RunFolder

_MESSAGE_LINES = 3
_LAST_WORDS = 3


def lines(run: RunFolder, state: RunState) -> list[str]:
    if state.state == "succeeded":
        return _success(run, state)
    if state.state == "failed":
        return _failure(run, state)
    reason = f": {state.reason}" if state.reason else ""
    return [f"{run.name} {'was ' if state.state == 'lost' else ''}{state.state}{_after(state)}{reason}"]


def next_command(run: RunFolder, state: RunState) -> str:
    if state.state == "failed":
        return f"oarlock logs --failed {run.name}"
    if state.state in ("stopped", "lost"):
        return f"oarlock run --resume {run.name}"
    return f"oarlock logs {run.name}"


def failure_lines(run: RunFolder, state: RunState, failure: Failure) -> list[str]:
    """Who failed, of what and where; the last output of one that could not say."""
    message = (failure.message or "").strip().splitlines()
    if failure.type is None:
        words = last_words(run, state.generation, failure.task)
        return [f"{failure.task}: {first_line(failure.reason)}", *(f"  | {word}" for word in words)]
    shown = [first_line(line) for line in message[:_MESSAGE_LINES]] or [""]
    cut = ["  …"] if len(message) > _MESSAGE_LINES else []
    return [
        f"{failure.task}: {failure.type}: {shown[0]}".rstrip(": "),
        *(f"  {line}" for line in shown[1:]),
        *cut,
        *([f"  at {_near(failure.where)}"] if failure.where else []),
    ]


def last_words(run: RunFolder, generation: int, task: str, count: int = _LAST_WORDS) -> list[str]:
    path = run.path / "logs" / str(generation) / f"{task}.log"
    try:
        with path.open("rb") as file:
            texts = (
                resolve(watch.parse_line(line.rstrip(b"\n"), 0, task).text, colours=False) for line in file
            )
            return [first_line(text) for text in deque((text for text in texts if text.strip()), count)]
    except OSError:
        return []


def _success(run: RunFolder, state: RunState) -> list[str]:
    leader = state.leader
    facts = [plural(leader.step, "step")] if leader and leader.step is not None else []
    facts += [plural(state.restarts, "restart")] if state.restarts else []
    told = [f"{run.name} succeeded{_after(state, 'in')}{': ' if facts else ''}{', '.join(facts)}"]
    model = run.model
    if model.is_dir() and any(model.iterdir()):
        told.append(f"model: {model}")
    return told


def _failure(run: RunFolder, state: RunState) -> list[str]:
    told = [f"{run.name} failed{_after(state)}, exit code {exit_code(state)}"]
    if state.failure is None:
        return [*told, first_line(state.reason or "", 400)]
    told += failure_lines(run, state, state.failure)
    if state.failure.refusal:
        told.append(f"not restarted: {state.failure.refusal}")
    return told


def _after(state: RunState, word: str = "after") -> str:
    if state.created is None or state.ended is None:
        return ""
    return f" {word} {duration(state.ended - state.created)}"


def _near(where: str) -> str:
    """Relative where that is shorter to read: the file is usually below the current folder."""
    path, _, line = where.rpartition(":")
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except (ValueError, OSError):
        return where
