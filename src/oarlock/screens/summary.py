"""The last lines on the screen: the result of a run, in at most ten lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from oarlock.engines.known_engines import traits_of
from oarlock.errors import OarlockError
from oarlock.records import watch
from oarlock.records.log_files import culprit
from oarlock.records.run_folder import RunFolder
from oarlock.run.error_text import error_text
from oarlock.run.run_state import RunState
from oarlock.run.task_state import Failure
from oarlock.screens import json_shape
from oarlock.screens.ansi import rows
from oarlock.screens.event_text import exit_code, first_line
from oarlock.units import duration, number, plural

_MESSAGE_LINES = 3
_LAST_WORDS = 3
_SCORES = 3  # metrics
_FAILED = 2  # tasks
_TAIL = 200  # lines; a dump of many threads is long


def lines(run: RunFolder, state: RunState) -> list[str]:
    """Return the result of a run that has ended."""
    if state.state == "succeeded":
        return _success(run, state)
    if state.state == "failed":
        return _failure(run, state)
    reason = f": {state.reason}" if state.reason else ""
    if state.state == "lost":
        more = [f"more: {run.agent_log}"] if traits_of(run).files_are_here else []
        return [f"{run.name} was lost{reason}", *more]
    return [f"{run.name} {state.state}{_after(state)}{reason}"]


def next_command(run: RunFolder, state: RunState) -> str:
    """Return the command that a user is likely to type next."""
    if state.failure is not None:
        return f"oarlock logs --failed {run.name}"
    traits = traits_of(run)
    if state.state in ("stopped", "lost") and state.state in traits.resumable:
        return f"oarlock run --resume {run.name}"
    if state.state == "succeeded" and not traits.files_are_here:
        return f"oarlock pull {run.name}"
    return f"oarlock logs {run.name}"


def failure(run: RunFolder, failed: Failure) -> list[str]:
    """Return which task failed, why and where; its last output if it raised no exception; what it missed."""
    cause, more = _cause(run, failed), []
    if failed.type == "ModuleNotFoundError":
        from oarlock.screens import missing_packages  # reads what is installed

        more = missing_packages.explain(run, failed)
    if run.sent_from is not None:
        from oarlock.screens import missing_files  # imports what packs programs

        more += missing_files.explain(
            run, f"{failed.type}: {failed.message}" if failed.type else "\n".join(cause)
        )
    return [*cause, *more, *([f"not restarted: {failed.refusal}"] if failed.refusal else [])]


def _cause(run: RunFolder, failed: Failure) -> list[str]:
    if failed.type is None:
        words = _last_words(run, failed.task)
        return [f"{failed.task}: {first_line(failed.reason)}", *(f"  | {word}" for word in words)]
    message = (failed.message or "").strip().split("\n")
    advice = [] if failed.reason in ("", error_text(failed.type, failed.message)) else [f"  {failed.reason}"]
    shown = [first_line(line) for line in message[:_MESSAGE_LINES]]
    return [
        f"{failed.task}: {error_text(failed.type, shown[0])}",
        *(f"  {line}" for line in shown[1:]),
        *(["  …"] if len(message) > _MESSAGE_LINES else []),
        *([f"  at {_near(failed.where)}"] if failed.where else []),
        *advice,
    ]


def _last_words(run: RunFolder, task: str) -> list[str]:
    try:
        log = watch.Tail(run.log_file(culprit(run)[1], task))
    except OarlockError:
        return []
    log.skip()
    lines = [line.partition(b" ")[2].decode(errors="replace") for line in log.last(_TAIL)]
    texts = [row for line in lines if line.strip() for row in rows(line, colours=False)]
    return [first_line(text) for text in _crash(texts) or texts[-_LAST_WORDS:]]


def _crash(texts: Sequence[str]) -> list[str]:
    """The error and the innermost frame of faulthandler's dump: its last lines are only Oarlock's frames."""
    for at, text in enumerate(texts):
        if text.startswith("Fatal Python error"):
            frames = (frame for frame in texts[at:] if frame.startswith("  File "))
            return [text, *islice(frames, 1)]
    return []


def _success(run: RunFolder, state: RunState) -> list[str]:
    leader = state.leader
    facts = [plural(leader.step, "step")] if leader and leader.step is not None else []
    facts += [plural(state.restarts, "restart")] if state.restarts else []
    texts = [f"{run.name} succeeded{_after(state, 'in')}{': ' if facts else ''}{', '.join(facts)}"]
    texts += [first_line(state.reason, 400)] if state.reason else []
    texts += [f"scored: {text}" for text in scores(state)]
    failed = [name for name, task in state.tasks.items() if task.state == "failed"]
    failed = [name for name in failed if name not in (state.reason or "")]  # an evaluator, say
    texts += [f"{name} failed: oarlock logs --task {name} {run.name}" for name in failed[:_FAILED]]
    model = json_shape.folders(run).get("model", "")
    if "://" in model or (Path(model).is_dir() and any(Path(model).iterdir())):
        texts.append(f"model: {model}")
    return texts


def scores(state: RunState) -> list[str]:
    """Return the evaluator's last score and its best one, a line for each of the first metrics."""
    return [
        f"{name} {number(score.latest)} at step {score.latest_step}, "
        f"best {number(score.best)} at step {score.best_step}"
        for name, score in islice(state.scores.items(), _SCORES)
    ]


def _failure(run: RunFolder, state: RunState) -> list[str]:
    heading = [f"{run.name} failed{_after(state)}, exit code {exit_code(state)}"]
    more = f"more: oarlock logs --failed {run.name}"
    if state.failure is None:
        return [*heading, *([first_line(state.reason, 400)] if state.reason else [])]
    return [*heading, *failure(run, state.failure), more]


def _after(state: RunState, word: str = "after") -> str:
    if state.created is None or state.ended is None:
        return ""
    return f" {word} {duration(state.ended - state.created)}"


def _near(where: str) -> str:
    """The place relative to the current folder, if it is below it."""
    path, _, line = where.rpartition(":")
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except (ValueError, OSError):
        return where
