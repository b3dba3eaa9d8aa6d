"""The state of a long run is kept beside its events, and never differs from what all of these give."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from oarlock.records import state_cache
from oarlock.records.run_folder import RunFolder
from oarlock.run.run_events import decode, encode
from oarlock.run.run_state import RunState, fold
from tests.support.known_events import KNOWN


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Its state is kept after every hundred bytes."""
    monkeypatch.setattr(state_cache, "WORTH", 100)
    return RunFolder(tmp_path)


def said(count: int, seed: int = 1) -> list[str]:
    """Lines of events of all kinds, mostly reports."""
    chance = random.Random(seed)
    steps = [{"kind": "report", "task": "worker-0", "step": n, "loss": 1 / (n + 1)} for n in range(count)]
    told = [chance.choice(KNOWN) if chance.random() < 0.2 else step for step in steps]
    return [f"{encode({'t': 1000.0 + number, **event})}\n" for number, event in enumerate(told)]


def expected(run: RunFolder) -> RunState:
    lines = run.events_file.read_text().splitlines()
    return fold(run.name, [event for line in lines if (event := decode(line))])


def state(run: RunFolder) -> RunState:
    return state_cache.state_of(run.name, run.events_file, run.state_cache_file)


def test_whatever_was_kept_the_state_is_that_of_all_events(run: RunFolder) -> None:
    for line in said(120):
        with run.events_file.open("a") as file:
            file.write(line[: len(line) // 2])
        assert state(run) == expected(run)  # half a line is none
        with run.events_file.open("a") as file:
            file.write(line[len(line) // 2 :])
        assert state(run) == expected(run)
    place = json.loads(run.state_cache_file.read_bytes())["place"]
    assert run.events_file.stat().st_size - place < 300


def test_what_was_folded_is_not_read_again(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.events_file.write_text("".join(said(100)))
    before = state(run)
    monkeypatch.setattr(state_cache, "decode", None)
    assert state(run) == before


def test_a_last_line_without_its_end_counts_once(run: RunFolder) -> None:
    *lines, last = said(100)
    run.events_file.write_text("".join(lines) + last.rstrip())
    assert state(run) == state(run) == expected(run)


@pytest.mark.parametrize(
    "kept", ["", "[]", "{}", '{"writer": "0.0.1, 1"}', "[" * 100_000, '{"place": "x"}', '{"place": -5}']
)
def test_what_does_not_fit_is_folded_again(run: RunFolder, kept: str) -> None:
    run.events_file.write_text("".join(said(100)))
    state(run)
    is_data = kept.startswith("{")
    good = json.loads(run.state_cache_file.read_bytes())
    run.state_cache_file.write_text(
        json.dumps({**good, **json.loads(kept)}) if is_data and kept != "{}" else kept
    )
    assert state(run) == expected(run)
    assert json.loads(run.state_cache_file.read_bytes()) == good


def test_other_events_are_folded_again(run: RunFolder) -> None:
    run.events_file.write_text("".join(said(100)))
    state(run)
    run.events_file.write_text("".join(said(120, seed=2)))
    assert state(run) == expected(run)
    run.events_file.write_text("".join(said(50)))  # fewer
    assert state(run) == expected(run)


def test_where_nothing_can_be_kept_the_state_is_told(run: RunFolder) -> None:
    run.state_cache_file.mkdir()
    run.events_file.write_text("".join(said(100)))
    assert state(run) == expected(run)
    assert [path.name for path in run.path.iterdir() if path.name.startswith(".")] == []


def test_a_short_run_has_no_such_file(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.events_file.write_text("".join(said(100)))
    assert run.state().updated == expected(run).updated
    assert not run.state_cache_file.exists()
