"""A machine that does not see the leader's folder copies the data that was prepared there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.agent.ingest import data_copy
from oarlock.agent.ingest.data_copy import EACH, Offer
from oarlock.agent.ingest.data_folder import MARK, DataFolder
from oarlock.agent.protocol import messages
from oarlock.agent.protocol.spec import IngestSpec, Program
from oarlock.agent.protocol.wire import WireError
from tests.support.commands import started
from tests.support.members import Leader, leading

# Prepares data once a file says so. An argument has it do more.
PREPARE = """
import os, pathlib, sys, time
data = pathlib.Path(os.environ["DATA_DIR"])
(data / "folder" / "deep").mkdir(parents=True)
(data / "empty").mkdir()
(data / "large").write_bytes(os.urandom(3_000_000))
(data / "folder" / "deep" / "run.sh").write_text("echo")
(data / "folder" / "deep" / "run.sh").chmod(0o755)
if "link" in sys.argv:
    (data / "link").symlink_to("large")
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""


def ingest(*args: str) -> IngestSpec:
    return IngestSpec("key", Program("command", [sys.executable, "-c", PREPARE], list(args)), where="each")


def copying(leader: Leader, target: Path) -> list[str]:
    """The command line of a following agent's task."""
    assert leader.spec.ingest is not None
    program = data_copy.program(leader.spec, leader.spec.ingest, DataFolder(target), leader.address)
    return [sys.executable, "-m", str(program.target), *program.args]


def go(leader: Leader) -> None:
    Path(leader.spec.cwd, "go").touch()


def described(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything in a folder of data, but for the mark, which each machine makes of its own."""
    return {
        path.relative_to(folder).as_posix(): (
            path.is_dir() or (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns),
        )
        for path in folder.rglob("*")
        if path.name != MARK
    }


def test_it_waits_for_the_leaders_data_and_copies_all_of_it(tmp_path: Path) -> None:
    target = tmp_path / "ours" / "key"
    with leading(tmp_path / "leader", machines=2, ingest=ingest()) as leader:
        theirs = Path(leader.spec.folders["data"])
        leader.until(lambda: DataFolder(theirs).draft.exists(), "the leader's ingest")
        with started(*copying(leader, target)) as task:
            leader.until(lambda: DataFolder(target).draft.exists(), "a task that waits")
            assert not target.exists()
            go(leader)
            said, problems = task.communicate(timeout=300)
    assert (task.returncode, problems) == (0, "")
    assert said == "ingest: 2 files, 3,000,004 bytes, copied from the leader\n"
    assert described(target) == described(theirs)
    assert len(described(target)) == 5
    assert json.loads((target / MARK).read_text())["run"] == "led"
    assert not DataFolder(target).work.exists()


def test_a_leader_that_starts_again_is_asked_again(tmp_path: Path) -> None:
    target = tmp_path / "ours" / "key"
    with leading(tmp_path / "leader", machines=2, ingest=ingest()) as leader:
        # The address stays, as that of a Service does.
        (leader.folder / "agent.json").write_text(_at_port(leader))
        with started(*copying(leader, target)) as task:
            leader.until(lambda: DataFolder(target).draft.exists(), "a task that waits")
            leader.process.kill()
            leader.process.wait()
            go(leader)
            leader.start()
            said, problems = task.communicate(timeout=300)
    assert (task.returncode, problems) == (0, "")
    assert "copied from the leader" in said


def _at_port(leader: Leader) -> str:
    return json.dumps({**json.loads(leader.spec.to_json()), "port": leader.address[1]})


def test_data_with_links_is_prepared_by_each(tmp_path: Path) -> None:
    with leading(tmp_path / "leader", machines=2, ingest=ingest("link")) as leader:
        go(leader)
        words = copying(leader, tmp_path / "ours" / "key")
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (EACH, "")
    assert "it has links in it; this machine prepares its own" in done.stdout


def test_too_much_data_is_prepared_by_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataFolder(tmp_path / "key")
    folder.begin()
    for number in range(3):
        (folder.draft / f"{number}").write_text("content")
    folder.seal("run", "key")
    offer = Offer(folder, "run", ingest())
    assert [file.name for file in messages.offered_data(offer.to_data()).files] == ["0", "1", "2"]
    monkeypatch.setattr(data_copy, "LARGEST", 20)
    assert offer.to_data()["state"] == "each"
    monkeypatch.setattr(data_copy, "LARGEST", 21)
    assert offer.to_data()["state"] == "ready"
    monkeypatch.setattr(data_copy, "MOST", 2)
    assert offer.to_data()["state"] == "each"


def test_what_another_run_has_left_is_not_offered_if_it_is_to_be_prepared_again(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "key")
    folder.begin()
    folder.seal("earlier", "key")
    again = IngestSpec("key", where="each", when="always")
    assert Offer(folder, "later", again).to_data()["state"] == "preparing"
    assert Offer(folder, "earlier", again).to_data()["state"] == "ready"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "", ".."])
def test_a_name_that_leads_out_of_the_folder_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").touch()
    (tmp_path / "key").mkdir()
    assert Offer(DataFolder(tmp_path / "key"), "run", ingest()).paths(name) == []
    with pytest.raises(WireError):
        messages.offered_data({"state": "ready", "files": [[name, 1, 1, 0o644]]})


@pytest.mark.parametrize(
    "file",
    [["a"], ["a", 1, 1], ["a", -1, 1, 1], ["a", 1, 1, True], ["a", 2**63, 1, 1], "a", None, [3, 1, 1, 1]],
)
def test_a_file_that_is_none_is_refused(file: object) -> None:
    with pytest.raises(WireError):
        messages.offered_data({"state": "ready", "files": [file]})
