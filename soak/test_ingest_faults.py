"""An ingest under fire: task, agent and pod killed, its disk full, its download cut, its node lost.

    OARLOCK_MOMENTS=30 .venv/bin/python -m pytest -s soak/test_ingest_faults.py

Whatever happens, its data is never half used, and is there in the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock.agent.ingest.data_folder import MARK
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, Object, selecting
from oarlock.engines.local import local_engine
from oarlock.records import runs
from oarlock.system import processes
from tests.support.clusters import Cluster
from tests.support.commands import Command
from tests.support.gangs import Gang
from tests.support.kubernetes.driving import MEET, refreshed, unused
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import moments
from tests.support.unreliable_server import Unreliable, unreliable
from tests.support.waiting import eventually

pytest_plugins = ["tests.kubernetes.conftest"]
PARTS = 40
SIZE = 50_000  # bytes of a part
CONTENT = random.Random(7).randbytes(PARTS * SIZE)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ROOM = 9 << 20  # bytes of the small disk: for the source and the data, twice
# Cuts its source into parts. Its argument only makes it another ingest, with data of its own.
INGEST = f"""
import os, pathlib, sys, time, oarlock
me = oarlock.current()
assert not list(me.data.iterdir()), "what an ingest that died has left"
content = (me.sources / "raw").read_bytes()
for number in range({PARTS}):
    (me.data / f"part-{{number:02}}").write_bytes(content[number * {SIZE} : (number + 1) * {SIZE}])
    me.report(number + 1, total={PARTS})
    time.sleep(float(sys.argv[2]))
"""
TRAIN = """
import hashlib, oarlock
parts = sorted(oarlock.current().data.glob("part-*"))
print("trained on", hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest(), flush=True)
"""


@pytest.fixture
def server() -> Iterator[Unreliable]:
    with unreliable() as served:
        served.content = CONTENT
        yield served


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one, as a file system of its own."""
    if os.geteuid():
        pytest.skip("mounting a small disk needs root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def start(folder: Path, server: Unreliable, number: int, **fields: Any) -> Gang:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ingest.py").write_text(INGEST)
    sources = {"raw": {"url": server.url, "sha256": SHA256}}
    ingest = {"program": "ingest.py", "args": [str(number), "0.005"], "sources": sources}
    return Gang(folder, TRAIN, roles={"worker": 1}, ingest=ingest, **fields)


def is_half(data: Path) -> bool:
    """Whether somebody could take for the data what is not all of it."""
    found = {path.name for path in data.iterdir()} if data.exists() else set()
    return bool(found) and len(found) != PARTS + 1


def is_done(data: Path) -> bool:
    return (data / MARK).exists()


def until_some_moment(run: Gang, data: Path, chance: random.Random) -> None:
    """While the source comes, between two parts, when it is sealed, or after it."""
    work = data.with_name(f".{data.name}.ingest")
    what = chance.choice(["begun", "source", "part", "part", "part", "last", "done"])
    seen: dict[str, Callable[[], bool]] = {
        "begun": lambda: work.exists(),
        "source": lambda: any((work / "sources").glob("*")),
        "last": lambda: (work / "data" / f"part-{PARTS - 1:02}").exists(),
        "done": lambda: False,
    }
    part = work / "data" / f"part-{chance.randrange(PARTS):02}"
    is_there = seen.get(what, part.exists)
    run.until(lambda _: is_there() or is_done(data), what)


def finish(run: Gang, data: Path) -> None:
    """To its end, however often it has to be resumed."""
    state = run.end()
    for _ in range(3):
        assert not is_half(data), sorted(data.iterdir())
        if state.state == "succeeded":
            break
        local_engine.resume(run.run)
        state = run.end()
    assert state.state == "succeeded", run.told()
    assert f"worker-0| trained on {SHA256}" in run.lines, run.told()
    assert is_done(data)
    eventually(lambda: not data.with_name(f".{data.name}.ingest").exists(), "end of what it was made in")
    assert json.loads((data / MARK).read_text())["files"] == PARTS


@pytest.mark.timeout(7200)
def test_killed_and_cut_at_random_moments(home: Path, tmp_path: Path, server: Unreliable) -> None:
    chance = random.Random(os.environ.get("OARLOCK_CHANCE", "ingest"))
    killed: list[str] = []
    for number in range(moments(4)):
        server.cuts = [chance.randrange(1, len(CONTENT)) for _ in range(chance.randrange(3))]
        run = start(tmp_path / "job", server, number)
        data = Path(run.run.spec().folders["data"])
        until_some_moment(run, data, chance)
        assert not is_half(data), sorted(data.iterdir())
        victim = chance.choice(["task", "agent", "both"])
        pids = []
        if victim != "agent":
            pids += [task.pid for name, task in run.state.tasks.items() if name == "ingest-0"]
        if victim != "task":
            pids.append(run.state.agent)
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                processes.send(pid, signal.SIGKILL)
        finish(run, data)
        killed.append(victim)
    print(f"\n{len(killed)} ingests: {', '.join(killed)}")


@pytest.mark.timeout(7200)
def test_a_full_disk_at_random_moments(home: Path, tmp_path: Path, server: Unreliable, disk: Path) -> None:
    """It says that there is no room, leaves nothing that looks like data, and is done once there is."""
    chance = random.Random(os.environ.get("OARLOCK_CHANCE", "disk"))
    said: list[str] = []
    for number in range(moments(4)):
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(ROOM - chance.randrange(4096, 2 * len(CONTENT))))
        run = start(tmp_path / "job", server, number, storage={"data": str(disk / str(number))})
        data = Path(run.run.spec().folders["data"])
        state = run.end()
        assert (state.state, is_done(data), is_half(data)) == ("failed", False, False), run.told()
        assert "No space left on device" in run.told(), run.told()
        assert state.failure is not None
        said.append(f"{state.failure.task}: {state.failure.message}")
        ballast.unlink()
        finish(run, data)
        subprocess.run(["rm", "-rf", str(disk / str(number))], check=True)
    print(f"\n{len(said)} full disks; the last said {said[-1]!r}")


FAULTS = ("pod deleted", "node killed", "node cut off")


@pytest.mark.timeout(7200)
def test_on_a_cluster_pods_and_nodes_are_lost(
    oarlock: Command, cluster: Cluster, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    """The leader's, in the middle of its ingest: the pod that replaces it does it all again, on the claim.
    The other worker's pod, which waits or may be lost too, copies it from there."""
    chance = random.Random(os.environ.get("OARLOCK_CHANCE", "pods"))
    faults = [chance.choice(FAULTS) for _ in range(moments(1) - len(FAULTS))] + list(FAULTS)
    job = tmp_path / unused()
    job.mkdir()
    (job / "raw").write_bytes(CONTENT)
    (job / "ingest.py").write_text(INGEST)
    (job / "train.py").write_text(TRAIN + MEET)
    roles = {"worker": {"replicas": 2, **SMALL}}
    for number, fault in enumerate(faults):
        ingest = {"program": "ingest.py", "args": [str(number), "0.3"], "sources": {"raw": "raw"}, **SMALL}
        told = {"name": job.name, "program": "train.py", "ingest": ingest, "roles": roles}
        (job / "job.yaml").write_text(yaml.safe_dump(told))
        name = f"{job.name}-{number}"
        ended.append(name)
        done = oarlock("run", "--on", "kubernetes", "-d", "--name", name, str(job))
        assert done.returncode == 0, done.stderr
        part = chance.randrange(PARTS - 15)
        eventually(lambda: parts_done(name) >= part, f"part {part} of {name}", 300)  # noqa: B023
        [pod] = api.all("Pod", f"{selecting(name)},{LEAD}=true")
        with lost(api, cluster, fault, pod):
            at = parts_done(name)
            done = oarlock("attach", name, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = oarlock("logs", name).stdout.splitlines()
        for task in ("worker-0", "worker-1"):
            assert f"{task} | trained on {SHA256}" in [" ".join(line.split()) for line in lines], lines
        print(f"\n{fault} at part {at}: done in the end", end="", flush=True)


def parts_done(name: str) -> int:
    """How many parts the leader's ingest has made, as far as is known here. While its source comes, it counts
    bytes."""
    task = refreshed(runs.find(name)).state().tasks.get("ingest-worker-0")
    return (task.step or 0) if task is not None and task.total == PARTS else -1


@contextmanager
def lost(api: Api, cluster: Cluster, fault: str, pod: Object) -> Iterator[None]:
    """A pod is gone, or its node is for as long as this lasts."""
    if fault == "pod deleted":
        api.delete("Pod", pod["metadata"]["name"], grace=0)
        yield
        return
    node = str(pod["spec"]["nodeName"]).rpartition("-")[2]
    verb, mended = ("kill-node", "start-node") if fault == "node killed" else ("cut-node", "join-node")
    cluster.do(verb, node)
    try:
        yield
    finally:
        cluster.do(mended, node)
