"""TensorBoard's files as the leading agent writes them."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

from oarlock.agent.record.board_files import BoardFiles, EventFile, board_folder, event_files
from oarlock.agent.record.run_record import Record
from oarlock.run.board_points import Point
from oarlock.run.run_state import RunState
from tests.support.event_files import event_file, points_in


def _point(step: int, generation: int = 1, folder: str = "training", **values: float) -> Point:
    return Point(folder, generation, 1.0 + step, step, values or {"loss": float(step)})


def _steps(folder: Path) -> list[tuple[str, int]]:
    return [(tag, step) for tag, step, _ in points_in(folder)]


def test_training_and_evaluation_have_a_folder_each(tmp_path: Path) -> None:
    board = BoardFiles(str(tmp_path / "logs"), str(tmp_path), "r")
    assert not (tmp_path / "logs").exists()
    board.add(_point(1))
    board.add(_point(2))
    board.add(_point(1, folder="evaluation", accuracy=0.5))
    board.finish()
    assert points_in(tmp_path / "logs" / "training") == [("restart", 1, 0), ("loss", 1, 1), ("loss", 2, 2)]
    assert points_in(tmp_path / "logs" / "evaluation") == [("restart", 1, 0), ("accuracy", 1, 0.5)]
    assert board.news() == []


def test_a_log_dir_for_several_runs_has_a_folder_for_each() -> None:
    assert board_folder("/home/runs/r/tensorboard", "/home/runs/r", "r") == "/home/runs/r/tensorboard"
    assert board_folder("/work/logs/", "/home/runs/r", "r") == "/work/logs/r"
    assert board_folder("/home/runs/r2", "/home/runs/r", "r") == "/home/runs/r2/r"


def test_work_that_is_done_again_replaces_what_was_lost(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    for point in (_point(10), _point(20), _point(19, mse=1.0), _point(15, 2), _point(25, 2), _point(30, 3)):
        file.add(point)
    file.close()
    assert _steps(tmp_path) == [
        *[("restart", 10), ("loss", 10), ("loss", 20), ("mse", 19)],  # another task is not ahead: no restart
        *[("restart", 15), ("loss", 15), ("loss", 25), ("loss", 30)],
    ]


def test_the_next_leader_begins_another_file(tmp_path: Path) -> None:
    for step in (20, 10):
        file = EventFile(tmp_path)
        file.add(_point(step))
        file.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert _steps(tmp_path) == [("restart", 20), ("loss", 20), ("restart", 10), ("loss", 10)]


def test_a_full_disk_is_said_once_and_tears_no_file(tmp_path: Path) -> None:
    record = Record(tmp_path, RunState("r"))
    record.board = BoardFiles(str(tmp_path / "logs"), str(tmp_path), "r")
    record.emit("generation", generation=1, tasks=["worker-0"])
    record.emit("report", task="worker-0", step=1, loss=1.0)
    record.board.finish()
    record.flush()  # or its own thread would meet the limit
    [path] = (tmp_path / "logs" / "training").iterdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
    try:
        record.board.add(_point(2))
        record.board.add(_point(3))
        record.board.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for step in (4, 5):
        record.emit("report", task="worker-0", step=step, loss=float(step))
    record.end("succeeded", 0)
    losses = [step for tag, step, _ in points_in(path.parent) if tag == "loss"]
    assert losses == [1, 4, 5]
    assert record.state.notes == [
        "TensorBoard's files cannot be written (File too large): points are missing there"
    ]


def test_a_bucket_is_left_alone_which_is_said_with_the_first_report(tmp_path: Path) -> None:
    record = Record(tmp_path, RunState("r"))
    record.board = BoardFiles("s3://bucket/logs", str(tmp_path), "r")
    record.emit("generation", generation=1, tasks=["worker-0"])
    assert record.state.notes == []
    for step in (1, 2):
        record.emit("report", task="worker-0", step=step, loss=1.0)
    record.end("succeeded", 0)
    [note] = record.state.notes
    assert note.startswith("LOG_DIR is s3://bucket/logs, where the agent writes nothing")
    assert not (tmp_path / "s3:").exists()


def test_files_of_the_program_s_own_are_noted(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    record = Record(tmp_path, RunState("r"))
    record.board = BoardFiles(str(logs), str(tmp_path), "r")
    record.emit("generation", generation=1, tasks=["worker-0"])
    record.emit("report", task="worker-0", step=1, loss=1.0)
    record.board.finish()
    assert '"kind":"logs"' not in (tmp_path / "events.jsonl").read_text()
    (logs / "deep" / "er").mkdir(parents=True)
    (logs / "deep" / "er" / "events.out.tfevents.1.host").write_bytes(event_file("loss"))
    record.end("succeeded", 0)
    assert (tmp_path / "events.jsonl").read_text().count('"kind":"logs"') == 1
    assert event_files(str(logs), ours=True)
    assert event_files(str(logs / "deep"), ours=False)
    assert not event_files(str(logs / "deep"), ours=True)


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    proceed = threading.Event()
    board = BoardFiles(str(tmp_path), str(tmp_path), "r")
    board._outlet.put(lambda: print(proceed.wait(60)))
    try:
        for step in range(20_000):
            board.add(_point(step))
        assert len(board._outlet._jobs) < 10_000
    finally:
        proceed.set()
