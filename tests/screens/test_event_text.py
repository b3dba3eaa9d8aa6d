"""The two screens, fed by hand: how often, how much, in which order."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from oarlock.records.log_blocks import Block
from oarlock.run.run_state import RunState, fold
from oarlock.run.task_state import TaskState
from oarlock.screens import event_text
from oarlock.screens.live import Display, draw
from oarlock.screens.plain import Plain


def happened(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"t": float(number), **event} for number, event in enumerate(events)]


def running(step: int = 120) -> RunState:
    state = fold(
        "mnist-abcd",
        happened(
            {"kind": "run", "job": "mnist", "tasks": ["worker-0", "worker-1"]},
            {"kind": "agent", "pid": 1},
            {"kind": "generation", "generation": 1, "tasks": ["worker-0", "worker-1"]},
            {"kind": "task", "task": "worker-0", "state": "started", "pid": 2},
            {"kind": "task", "task": "worker-1", "state": "started", "pid": 3},
        ),
    )
    state.tasks["worker-0"].step = step
    state.tasks["worker-0"].total = 400
    state.tasks["worker-0"].rate = 3.2
    state.tasks["worker-0"].metrics = {"accuracy": 0.9, "loss": 0.41, "lr": 0.01, "more": 1}
    return state


def test_progress_is_one_line() -> None:
    told = event_text.progress(running().tasks["worker-0"])
    assert told == "step 120/400  3.2/s  loss 0.41  accuracy 0.9  lr 0.01  ETA 1m28s"


def test_the_progress_of_an_ingest_is_not_called_a_step() -> None:
    assert event_text.run_progress(TaskState("ingest-chief-0", step=5, total=70)) == "ingest 5/70"
    assert event_text.run_progress(TaskState("worker-0", step=5, total=70)) == "step 5/70"


def test_where_the_time_went_is_one_line() -> None:
    parts = {"start": 3.1, "rendezvous": 2.2, "step": 680.0, "checkpoint": 0.0, "lost": 31.0, "waiting": 0.04}
    told = event_text.time_spent({"total": 723.0, **parts, "goodput": 0.9405})
    assert told == "12m03s: step 11m20s (goodput 94%), start 3.1s, rendezvous 2.2s, lost work 31s"
    nothing = {"total": 1.0, **dict.fromkeys(parts, 0.0), "start": 1.0, "goodput": None}
    assert event_text.time_spent(nothing) == "1.0s: step 0.0s, start 1.0s"
    assert (event_text.goodput(nothing), event_text.goodput({"goodput": 0.0})) == ("", "0%")


def test_events_that_others_will_emit_are_told() -> None:
    saved = {"t": 1.0, "kind": "checkpoint", "task": "worker-0", "step": 40, "seconds": 0.42}
    assert event_text.describe(saved) == "checkpoint of step 40 saved in 0.4s"
    scaled = {"t": 1.0, "kind": "restart", "forgiven": True, "reason": "scaled to 4 workers", "left": 3}
    assert event_text.describe(scaled) == "scaled to 4 workers; restarting the gang"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"reason": "AssertionError", "task": "worker-1"},
            "worker-1 failed: AssertionError; restarting (2 left)",
        ),
        (
            {"reason": "AssertionError: ", "task": "worker-1"},  # of an earlier Oarlock
            "worker-1 failed: AssertionError; restarting (2 left)",
        ),
        (
            {"reason": "RuntimeError: Missing keys:\n\ta\n\tb", "task": "worker-1"},
            "worker-1 failed: RuntimeError: Missing keys; restarting (2 left)",
        ),
        (
            {"reason": "ValueError: Too small.", "task": "w-0"},
            "w-0 failed: ValueError: Too small; restarting (2 left)",
        ),
        ({"task": "worker-1"}, "worker-1 failed; restarting (2 left)"),
        ({}, "restarting (2 left)"),
        ({"forgiven": True}, "restarting the gang"),
        (
            {"reason": "exit code 1", "task": "worker-1", "alone": True},
            "worker-1 failed: exit code 1; restarting it alone (2 left for it)",
        ),
        (
            {"reason": "exit code 1", "task": "worker-1", "doubled": True},
            "worker-1 failed: exit code 1; restarting (2 left: a failure without a new step counts as two)",
        ),
    ],
)
def test_a_restart_is_one_sentence(fields: dict[str, Any], told: str) -> None:
    assert event_text.describe({"t": 1.0, "kind": "restart", "left": 2, **fields}) == told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"type": "AssertionError", "message": "", "where": "a.py:3"}, "w-0 AssertionError at a.py:3"),
        ({"type": "AssertionError"}, "w-0 AssertionError"),
        ({"type": "KeyError", "message": "'x'"}, "w-0 KeyError: 'x'"),
        ({"type": "ValueError", "message": "\n first\nsecond"}, "w-0 ValueError: first"),
    ],
)
def test_an_error_is_one_line(fields: dict[str, Any], told: str) -> None:
    assert event_text.describe({"t": 1.0, "kind": "error", "task": "w-0", **fields}) == told


@pytest.mark.parametrize(
    ("rate", "shown"), [(None, ""), (0.0, ""), (250.04, "250.0/s"), (0.5, "0.5/s"), (0.05, "3/min")]
)
def test_rates(rate: float | None, shown: str) -> None:
    assert event_text.rate(TaskState("worker-0", rate=rate)) == shown


def test_plain_progress_comes_at_most_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    screen = Plain(clock=lambda: now)
    told = []
    for now, step in ((100.0, 1), (104.9, 2), (105.0, 3), (109.0, 4), (200.0, 5)):  # noqa: B007
        screen.show(running(step), happened({"kind": "report", "task": "worker-0", "step": step}), [])
        told.append(capsys.readouterr().out.partition("step ")[2].partition("/")[0])
    assert told == ["1", "", "3", "", "5"]


def test_no_report_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """What an earlier life of the run had reported is no news."""
    Plain().show(running(), [], [])
    assert capsys.readouterr().out == ""


def test_output_and_events_are_shown_as_they_happened(capsys: pytest.CaptureFixture[str]) -> None:
    restart = {"t": 2.0, "kind": "restart", "task": "worker-1", "reason": "exit code 1", "left": 2}
    lines = [
        Block("1970-01-01T00:00:01.000000Z", 1, "worker-1", b"before"),
        Block("1970-01-01T00:00:03.000000Z", 2, "worker-1", b"after"),
    ]
    Plain().show(RunState("x"), [restart], lines)
    assert capsys.readouterr().out.splitlines() == [
        "worker-1 | before",
        "oarlock | worker-1 failed: exit code 1; restarting (2 left)",
        "worker-1 | after",
    ]


def drawn(state: RunState, height: int = 24, width: int = 120) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    with console.capture() as captured:
        console.print(draw(state, width, height))
    return captured.get().splitlines()


def test_the_display_has_a_line_per_task() -> None:
    state = running()
    state.restarts, state.tasks["worker-1"].starts = 2, 3
    heading, first, second = drawn(state)
    assert heading.startswith("mnist-abcd  running  generation 1  2 restarts")
    for part in (
        "worker-0",
        "running",
        "120/400",
        "━",
        "3.2/s",
        "loss 0.41",
        "accuracy 0.9",
        "lr 0.01",
        "ETA 1m28s",
    ):
        assert part in first
    assert "more" not in first
    assert "restarted" not in first
    assert second.startswith("worker-1")
    assert "restarted 2x" in second


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_where_it_is_narrow_the_metrics_give_way(width: int) -> None:
    lines = drawn(running(), width=width)
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    assert "120/400" in lines[1]
    assert ("lr 0.01" in lines[1]) == (width > 100)
    assert "ETA 1m28s" in lines[1]


def test_more_tasks_than_rows_are_counted_and_those_in_trouble_shown() -> None:
    state = RunState("big", state="running")
    state.tasks = {f"worker-{n}": TaskState(f"worker-{n}", state="running") for n in range(50)}
    state.tasks["worker-49"].state = "failed"
    lines = drawn(state, height=14)
    assert len(lines) == 12
    assert any(line.startswith("worker-49") for line in lines)
    assert lines[-1].startswith("and 40 more tasks")


def test_the_display_shows_output_above_itself_and_takes_itself_away() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=24, highlight=False, markup=False)
    display = Display(console)
    display.show(
        running(), [], [Block("t", 1, "worker-0", b"[bold]0%\r[bold]100% \x1b[2J\x1b[31mred\x1b[0m")]
    )
    shown = file.getvalue()
    assert "| \x1b[0m[bold]100% \x1b[31mred\x1b[0m" in shown
    assert "\x1b[2J" not in shown
    assert shown.index("[bold]100%") < shown.index("120/400")
    display.close()
    assert file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")


def test_the_display_shows_what_has_no_end_yet_below_the_tasks_and_harmless() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60, height=24, highlight=False, markup=False)
    display = Display(console)
    bar = f"\r 1%\r[bold] 2%\x1b[2J\x1b]0;title\x07 \x1b[31mred\x1b[0m {'x' * 100}"
    display.show(running(), [], [], {"worker-0": bar.encode(), "worker-1": b"\xff name? "})
    shown = file.getvalue()
    assert "| \x1b[0m[bold] 2% \x1b[31mred\x1b[0m xxx" in shown
    assert "\ufffd name? " in shown
    assert "\x1b[2J" not in shown
    assert "title" not in shown
    assert shown.index("120/400") < shown.index("[bold] 2%")
    assert "x" * 60 not in shown, "one row"
    display.show(running(), [], [Block("t", 1, "worker-0", b"whole")], {})
    assert "2%" not in file.getvalue().rpartition("\x1b[2K")[2]
    display.close()


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({}, ""),
        ({"memory": 42_900_000_000, "memory_total": 150_300_000_000}, "42.9/150 GB"),
        (
            {"memory": 0, "memory_total": 15_000_000_000, "power": 69.7, "utilization": 0.0},
            "0%  0/15 GB  70 W",
        ),
    ],
)
def test_what_gpus_say_is_short(told: dict[str, Any], shown: str) -> None:
    assert event_text.gpu(TaskState("worker-0", gpu=told)) == shown


def test_loss_and_mfu_are_the_first_metrics() -> None:
    told = {"epoch": 1, "tokens": 2, "mfu": 0.5, "loss": 0.25}
    assert event_text.metrics(TaskState("worker-0", metrics=told)) == ["loss 0.25", "mfu 0.5", "epoch 1"]


def test_the_display_shows_gpus_of_tasks_that_run() -> None:
    state = running()
    told = {"memory": 4 * 10**9, "memory_total": 9 * 10**9, "power": 612.0}
    state.apply({"t": 9.0, "kind": "gpu", "task": "worker-0", **told})
    assert "GPU 4/9 GB  612 W" in "\n".join(drawn(state, width=200))
    state.tasks["worker-0"].state = "failed"
    assert "GPU" not in "\n".join(drawn(state, width=200))
