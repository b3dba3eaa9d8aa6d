"""A cluster run's record here: each line once, whatever is repeated and whoever is killed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.agent.record import log_segments, pod_lines
from oarlock.engines.kubernetes.follow.ledger import Ledger
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.errors import LaterRun
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Tail, unfinished_lines
from tests.support import flushes

EVENT = {"t": 11.0, "kind": "agent", "pid": 1}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = tmp_path / "one"
    folder.mkdir()
    first = {"t": 10.0, "kind": "run", "job": "one", "engine": "kubernetes", "tasks": ["worker-0"]}
    (folder / "events.jsonl").write_text(json.dumps(first) + "\n")
    spec = Spec("one", str(folder), ".", Program("program", "train.py"), {"worker": 1}, {})
    (folder / "agent.json").write_text(spec.to_json())
    return RunFolder(folder)


def said(number: int, event: dict[str, object], record: float = 5.0) -> str:
    return pod_lines.event(number, record, event).decode().rstrip("\n")


def test_lines_go_where_a_local_run_has_them(run: RunFolder) -> None:
    ledger = Ledger(run)
    ledger.take("uid", "one-lead-0-abc", "2026-01-01T00:00:00.1Z", said(1, EVENT))
    ledger.take("uid", "one-lead-0-abc", "2026-01-01T00:00:00.2Z", "worker-0/3 | hello | you")
    ledger.take("uid", "one-lead-0-abc", "2026-01-01T00:00:00.3Z", "Traceback of the agent")
    ledger.commit()
    assert [event["kind"] for event in run.events()] == ["run", "agent"]
    assert (run.path / "logs/3/worker-0.log").read_text() == "2026-01-01T00:00:00.2Z hello | you\n"
    assert "one-lead-0-abc: Traceback of the agent" in (run.path / "agent.log").read_text()
    assert ledger.state.state == "starting"


def test_a_line_that_has_no_end_yet_is_shown_and_not_recorded(run: RunFolder) -> None:
    ledger = Ledger(run)
    ledger.take("uid", "pod", "2026-01-01T00:00:00.1Z", "worker-0/3 ~ name? ")
    ledger.commit()
    assert unfinished_lines(run, 3) == {"worker-0": b"name? "}
    ledger.take("uid", "pod", "2026-01-01T00:00:00.2Z", "worker-0/3 | name? Bob")
    ledger.commit()
    assert unfinished_lines(run, 3) == {}
    ledger.take("uid", "pod", "2026-01-01T00:00:00.3Z", "worker-0/3 ~  1%")
    ledger.take("uid", "pod", "2026-01-01T00:00:00.4Z", "worker-0/3 | 2%")
    ledger.take("uid", "pod", "2026-01-01T00:00:00.5Z", "worker-0/3 ~ \r 3%")
    ledger.commit()
    assert unfinished_lines(run, 3) == {"worker-0": b"\r 3%"}
    lines = (run.path / "logs/3/worker-0.log").read_text()
    assert lines == "2026-01-01T00:00:00.2Z name? Bob\n2026-01-01T00:00:00.4Z 2%\n"


def test_a_leader_that_took_over_tells_again_and_is_heard_once(run: RunFolder) -> None:
    ledger = Ledger(run)
    for number in (1, 2, 1, 2, 3):
        ledger.take("uid", "pod", "t", said(number, {**EVENT, "t": 10.0 + number}))
    ledger.take("uid", "pod", "t", said(1, {**EVENT, "t": 20.0}, record=6.0))  # one that lost its record
    ledger.commit()
    assert [event["t"] for event in run.events()] == [10.0, 11.0, 12.0, 13.0, 20.0]


def test_what_was_not_committed_is_cut_off(run: RunFolder) -> None:
    ledger = Ledger(run)
    ledger.positions["uid"] = Position("2026-01-01T00:00:01Z", 1)
    ledger.take("uid", "pod", "2026-01-01T00:00:01Z", "worker-0/1 | first")
    ledger.commit()
    for name, text in (
        ("events.jsonl", "half an ev"),
        ("logs/1/worker-0.log", "t second\n"),
        ("agent.log", "x"),
    ):
        with (run.path / name).open("a") as file:
            file.write(text)  # by a client that was killed before it could commit
    again = Ledger(run)
    assert again.positions["uid"].last == "2026-01-01T00:00:01Z"
    assert (run.path / "logs/1/worker-0.log").read_text() == "2026-01-01T00:00:01Z first\n"
    assert (run.path / "agent.log").read_text() == ""
    assert len(list(run.events())) == 1


def test_a_client_killed_before_its_first_commit_loses_nothing(run: RunFolder) -> None:
    Ledger(run)
    with (run.path / "events.jsonl").open("a") as file:
        file.write(said(1, EVENT).partition(" ")[2] + "\n")
    assert len(list(Ledger(run).run.events())) == 1


@pytest.mark.parametrize(
    "torn", [b"", b"{", b"null", b'{"positions": 3}', b'{"version": 1, "positions": {}}', None]
)
def test_a_commit_that_is_lost_costs_no_line_and_doubles_none(run: RunFolder, torn: bytes | None) -> None:
    def tell(ledger: Ledger) -> None:
        """All that the pod has said so far, as a reader without a position meets it."""
        ledger.take("uid", "pod", "2026-01-01T00:00:00.1Z", said(1, EVENT))
        ledger.take("uid", "pod", "2026-01-01T00:00:00.2Z", "worker-0/3 | hello")
        ledger.take("uid", "pod", "2026-01-01T00:00:00.3Z", "the agent itself")

    ledger = Ledger(run)
    tell(ledger)
    ledger.commit()
    with (run.path / "logs/3/worker-0.log").open("a") as file:
        file.write("2026-01-01T00:00:00.4Z half a li")
    before = (run.path / "events.jsonl").read_text()
    watched = run.path / "watched.json"
    watched.unlink() if torn is None else watched.write_bytes(torn)
    again = Ledger(run)
    tell(again)
    again.take("uid", "pod", "2026-01-01T00:00:00.4Z", "worker-0/3 | half a line, and the rest")
    again.take("uid", "pod", "2026-01-01T00:00:00.5Z", said(2, {**EVENT, "t": 12.0}))
    again.commit()
    assert (run.path / "logs/3/worker-0.log").read_text().splitlines() == [
        "2026-01-01T00:00:00.2Z hello",
        "2026-01-01T00:00:00.4Z half a line, and the rest",
    ]
    assert (run.path / "agent.log").read_text() == "2026-01-01T00:00:00.3Z pod: the agent itself\n"
    assert (run.path / "events.jsonl").read_text().startswith(before)
    assert [event["t"] for event in run.events()] == [10.0, 11.0, 12.0]


def test_lines_that_the_commit_tells_of_and_the_disk_lost_are_read_again(run: RunFolder) -> None:
    ledger = Ledger(run)
    for second in range(3):
        ledger.take("uid", "pod", f"2026-01-01T00:00:0{second}Z", f"worker-0/1 | line {second}")
    ledger.positions["uid"] = Position("2026-01-01T00:00:02Z", 1)
    ledger.commit()
    log = run.path / "logs/1/worker-0.log"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:1]))  # the power went
    again = Ledger(run)
    assert again.positions == {}
    for second in range(3):
        again.take("uid", "pod", f"2026-01-01T00:00:0{second}Z", f"worker-0/1 | line {second}")
    again.commit()
    assert [line.split(" ", 1)[1] for line in log.read_text().splitlines()] == ["line 0", "line 1", "line 2"]


def test_what_a_later_version_wrote_is_left_alone(run: RunFolder) -> None:
    Ledger(run)
    watched = run.path / "watched.json"
    watched.write_text(json.dumps({**json.loads(watched.read_text()), "version": 9}))
    with pytest.raises(LaterRun, match="record version 9, this one reads up to 1"):
        Ledger(run)


def test_lines_with_one_stamp_are_told_apart() -> None:
    position = Position()
    for stamp in ("1", "2", "2"):
        position.advance(stamp)
    taken = [
        position.takes(stamp, seen) for stamp, seen in (("1", 0), ("2", 0), ("2", 1), ("2", 2), ("3", 0))
    ]
    assert taken == [False, False, False, True, True]


@pytest.mark.parametrize(
    "text", ["::oarlock", "::oarlock {", "::oarlock []", '::oarlock {"n": 1}', "worker-0 | x", "x/1 | y", ""]
)
def test_what_is_no_line_of_ours_is_the_agents_own(text: str) -> None:
    assert pod_lines.parse(text) is None


def test_output_is_kept_to_its_limit_and_cut_back_across_segments(run: RunFolder) -> None:
    spec = Spec.from_json((run.path / "agent.json").read_text())
    limit = 1 << 16
    (run.path / "agent.json").write_text(replace(spec, limits=replace(spec.limits, logs=limit)).to_json())
    reader, seen = Tail(run.path / "logs" / "1" / "worker-0.log"), []
    for number in range(100):
        ledger = Ledger(run)  # whoever watches next
        ledger.take("uid", "pod", "2026-01-01T00:00:01Z", f"worker-0/1 | {number} {'x' * 1600}")
        ledger.commit()
        seen += [int(line.split()[1]) for line in reader.lines()]
        *_, (_, newest) = log_segments.of(reader.path)
        with newest.open("ab") as file:  # one that was killed before its commit
            file.write(b"2026-01-01T00:00:02Z torn")
    assert seen == list(range(100))
    kept = log_segments.of(reader.path)
    assert len(kept) > 2
    assert sum(path.stat().st_size for _, path in kept) <= limit + 2000


def test_what_was_committed_survives_a_power_cut(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(run)
    ledger.take("uid", "pod", "2026-01-01T00:00:00.1Z", said(1, EVENT))
    seen = flushes.recorded(monkeypatch)
    ledger.commit()
    assert seen == flushes.durable(run.path / "watched.json")
    seen.clear()
    ledger.end("succeeded", 0)
    ledger.seal()
    assert seen[-3:] == flushes.durable(run.path / "result.json")
