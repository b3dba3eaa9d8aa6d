"""An ingest on a cluster: in the leader's pod; others see its data or copy it. It needs no client."""

from __future__ import annotations

from pathlib import Path

import yaml

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, selecting
from oarlock.records import runs
from tests.support.commands import Command
from tests.support.kubernetes.driving import MEET, state_of
from tests.support.kubernetes.small import SMALL
from tests.support.waiting import eventually

# In the leader's pod it waits the first time, until that pod is gone.
INGEST = """
import os, pathlib, time
data, sources = pathlib.Path(os.environ["DATA_DIR"]), pathlib.Path(os.environ["SOURCES_DIR"])
assert not list(data.iterdir()), "what an ingest that died has left"
(data / "half").write_text("x")
was_here = pathlib.Path(os.environ["CHECKPOINT_DIR"], "was-here")
if os.environ["OARLOCK_INDEX"] == "0" and not was_here.exists():
    was_here.touch()
    print("waiting", flush=True)
    time.sleep(600)
(data / "numbers").write_text((sources / "table.csv").read_text())
print("ingested by", os.environ["OARLOCK_ROLE"])
"""
TRAIN = (
    """
import oarlock
print("read", sorted(path.name for path in oarlock.current().data.glob("[a-z]*")))
"""
    + MEET
)


def folder(path: Path, **fields: object) -> Path:
    path.mkdir()
    (path / "ingest.py").write_text(INGEST)
    (path / "train.py").write_text(TRAIN)
    (path / "table.csv").write_text("1,2\n")
    job = {
        "name": path.name,
        "program": "train.py",
        "ingest": {"program": "ingest.py", "sources": {"table.csv": "table.csv"}},
        "roles": {"worker": {"replicas": 2, **SMALL}},
        **fields,
    }
    (path / "job.yaml").write_text(yaml.safe_dump(job))
    return path


def test_the_leaders_pod_prepares_data_that_others_copy_and_a_later_run_finds(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    ended += ["ingest-once", "ingest-again"]
    job = folder(tmp_path / "ingest-each")
    done = oarlock("run", "--on", "kubernetes", "-d", "--name", "ingest-once", str(job))
    assert done.returncode == 0, done.stderr
    run = runs.find("ingest-once")

    eventually(
        lambda: "waiting" in oarlock("logs", "--task", "ingest-worker-0", "ingest-once").stdout,
        "the ingest of the leader's pod",
    )
    eventually(lambda: state_of(run.name).state == "ingesting", "word of it")
    [leader] = api.all("Pod", f"{selecting('ingest-once')},{LEAD}=true")
    api.delete("Pod", leader["metadata"]["name"])
    done = oarlock("attach", "ingest-once", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {task: _lines(oarlock, "ingest-once", task) for task in ("ingest-worker-0", "ingest-worker-1")}
    assert "ingested by ingest-worker" in said["ingest-worker-0"]
    assert "2 files, 5 bytes, copied from the leader" in said["ingest-worker-1"]
    assert "ingested by" not in said["ingest-worker-1"]
    for task in ("worker-0", "worker-1"):
        assert "read ['half', 'numbers']" in oarlock("logs", "--task", task, "ingest-once").stdout
    assert run.state().tasks["ingest-worker-1"].state == "finished"

    again = ("run", "--on", "kubernetes", "--name", "ingest-again", str(job))
    done = oarlock(*again, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ingest: done by ingest-once" in done.stdout
    assert "copied from the leader" in done.stdout, "its pod is new, and has no claim"
    assert "ingested by" not in done.stdout


def test_every_pod_prepares_its_own_data_where_it_cannot_be_copied(
    oarlock: Command, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("ingest-links")
    job = folder(tmp_path / "ingest-links")
    text = """
import os, pathlib
data = pathlib.Path(os.environ["DATA_DIR"])
(data / "numbers").write_text("1")
(data / "newest").symlink_to("numbers")
print("ingested by", os.environ["OARLOCK_ROLE"])
"""
    (job / "ingest.py").write_text(text)
    done = oarlock("run", "--on", "kubernetes", "--name", "ingest-links", str(job), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ingest-worker-1 | ingested by ingest-worker" in done.stdout
    assert "is not copied: it has links in it" in done.stdout
    for task in ("worker-0", "worker-1"):
        assert "read ['newest', 'numbers']" in _lines(oarlock, "ingest-links", task)


def _lines(oarlock: Command, run: str, task: str) -> str:
    shown = oarlock("logs", "--task", task, run)
    return shown.stdout + shown.stderr


def test_its_failure_ends_the_run_with_its_own_words(
    oarlock: Command, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("ingest-fails")
    job = folder(tmp_path / "ingest-bad")
    (job / "ingest.py").write_text("raise RuntimeError('the archive is empty')\n")
    done = oarlock("ingest", "--on", "kubernetes", "--name", "ingest-fails", str(job), timeout=300)
    assert done.returncode == 1
    assert "RuntimeError: the archive is empty" in done.stdout + done.stderr
