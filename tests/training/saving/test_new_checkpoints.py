"""`State.follow`: with a launcher, without one, and where it is refused."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from oarlock.checkpoints.store import Store
from oarlock.training.saving.new_checkpoints import ONLY, SCORED
from oarlock.training.state import State

pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Checkpoints of the steps 1 to 4, at which the height is the step."""
    folder = tmp_path / "checkpoints"
    monkeypatch.setenv("CHECKPOINT_DIR", str(folder))
    state = State(height=0)
    for _ in state.steps(4, save=1, keep=10):
        state._session.finish()
        state.height += 1
    return Store(folder)


@pytest.fixture
def evaluator(trained: Store, monkeypatch: pytest.MonkeyPatch, agent_line: socket.socket) -> socket.socket:
    for name, value in {"RUN": "r", "ROLE": "evaluator", "CHECKPOINTS": ""}.items():
        monkeypatch.setenv(f"OARLOCK_{name}", value)
    return agent_line


def told(agent: socket.socket) -> list[dict[str, Any]]:
    return [json.loads(line) for line in agent.recv(1 << 20).splitlines()]


def heights(state: State) -> dict[int, int]:
    found = {}
    for step in state.follow():
        found[step] = state.height
    return found


def test_without_a_launcher_it_scores_what_is_there_and_leaves_the_folder_to_the_training(
    trained: Store,
) -> None:
    trained.raise_fence("another", 7)
    (trained.folder / ".saving-by-another").mkdir()
    assert heights(State(height=0)) == {1: 1, 2: 2, 3: 3, 4: 4}
    assert trained.fence() == ("another", 7)
    assert (trained.folder / ".saving-by-another").exists()


def test_an_evaluator_scores_what_is_not_scored_until_it_is_asked_to_stop(
    trained: Store, evaluator: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The State itself holds the newest: what a generation was offered when it formed is older."""
    monkeypatch.setenv(SCORED, "step-0000000001-g1 step-0000000003-g1")
    state = State(height=0)
    assert (state.step, state.height) == (4, 4)
    steps = []
    for step in state.follow():
        steps.append((step, state.step, state.height))
        state.report(height=state.height)
        if step == 4:
            evaluator.send(b"stop\n")
    assert steps == [(2, 2, 2), (4, 4, 4)]
    events = [{**event, "t": 0} for event in told(evaluator)]
    assert events[0]["text"] == "restored step 4 (step-0000000004-g1)"
    assert events[1:] == [
        {"t": 0, "kind": "follow"},
        {"t": 0, "kind": "report", "step": 2, "generation": 1, "height": 2},
        {"t": 0, "kind": "report", "step": 4, "generation": 1, "height": 4},
    ]


def test_one_that_is_damaged_or_deleted_is_passed_over(trained: Store, evaluator: socket.socket) -> None:
    (trained.folder / "step-0000000002-g1" / "manifest.json").write_text("{}")
    evaluator.send(b"stop\n")
    state, steps = State(height=0), []
    for step in state.follow():
        steps.append(step)
        shutil.rmtree(trained.folder / "step-0000000003-g1", ignore_errors=True)
    assert steps == [1, 4]
    notes = [event["text"] for event in told(evaluator) if event["kind"] == "note"]
    assert notes[-1] == "skipped step-0000000002-g1, which is not whole: its manifest is damaged"


def test_leaving_the_loop_after_a_report_keeps_that_score(trained: Store, evaluator: socket.socket) -> None:
    state = State(height=0)
    for _ in state.follow():
        state.report(height=state.height)
        break
    assert [event["step"] for event in told(evaluator) if event["kind"] == "report"] == [1]


def test_where_only_one_is_asked_for_nothing_else_is_restored(
    trained: Store, evaluator: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ONLY, "step-0000000003-g1")
    state = State(height=0)
    assert state.height == 3
    assert heights(state) == {3: 3}


def test_an_evaluator_without_a_checkpoint_says_so(trained: Store, evaluator: socket.socket) -> None:
    shutil.rmtree(trained.folder)
    State(height=0)
    (note,) = told(evaluator)
    assert note["text"] == "no checkpoint yet: this State is untrained until state.follow() yields one"


def test_a_trainer_cannot_follow(trained: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RUN": "r", "ROLE": "worker", "INDEX": "1", "RANK": "1"}.items():
        monkeypatch.setenv(f"OARLOCK_{name}", value)
    with pytest.raises(
        RuntimeError, match=r"for an evaluator, and this is worker-1: a trainer calls state\.steps"
    ):
        State(height=0).follow()
