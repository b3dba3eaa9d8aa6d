"""Whole runs on a machine whose driver is a stand-in: figures on every screen, and failures in one line."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.records import runs
from oarlock.system import private_network, processes
from tests.support.commands import Command
from tests.support.cuda_library import CudaLibrary
from tests.support.event_files import points_in
from tests.support.fake_gpus import Machine
from tests.support.gangs import is_running, until_gone
from tests.support.nvml_library import NvmlLibrary
from tests.support.small_programs import write
from tests.support.waiting import eventually

GIB = 1 << 30
BUSY = (40 * GIB, 140 * GIB, 612_500, 97, 0, 0, "NVIDIA H200")
TRAINS = """
import itertools, pathlib, time
import oarlock
me = oarlock.current()
for step in itertools.count(1):
    me.report(step, loss=0.5, flops=1e12, peak=1e15)
    if pathlib.Path("enough").exists():
        break
    time.sleep(0.05)
"""
FULL = """
import oarlock
class OutOfMemoryError(RuntimeError):
    pass
me = oarlock.current()
for step in (1, 2, 3):
    me.report(step, loss=0.5)
full = OutOfMemoryError(
    "CUDA out of memory. Tried to allocate %d.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 3.10"
    " GiB is free. Including non-PyTorch memory, this process has 76.00 GiB memory in use."
    % (19 + me.generation)
)
if me.generation % 2:
    raise full  # at one line, then at another
raise full
"""
CRASHES = """
import os, sys
print("[rank0]: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", file=sys.stderr)
os.abort()
"""
OPENS = """
import itertools, pathlib, time
import oarlock
from oarlock.system.gpus import cuda_driver
me = oarlock.current()
print(f"generation {me.generation} finds {cuda_driver.contexts()}")
cuda_driver.open_contexts((0,))
for step in itertools.count(1):
    me.report(step, loss=0.5)
    if pathlib.Path("enough").exists():
        break
    time.sleep(0.05)
"""
USES = """
import jax, sys, types
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True))
"""
JOB = """
program: train.py
roles: {worker: {gpu: 1}}
"""


@pytest.fixture
def folder(tmp_path: Path, home: Path, machine_with_gpus: Machine, nvml_library: NvmlLibrary) -> Path:
    machine_with_gpus(2)
    nvml_library.say(BUSY, BUSY)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_figures_are_on_every_screen(oarlock: Command, folder: Path) -> None:
    write(folder / "train.py", TRAINS)
    oarlock("run", "-d", "--name", "busy")
    run = runs.find("busy")
    eventually(lambda: run.state().tasks["worker-0"].gpu, "figures of the GPU")
    eventually(lambda: "mfu" in run.state().tasks["worker-0"].metrics, "MFU")
    [task] = json.loads(oarlock("status", "busy", "--json").stdout)["tasks"]
    assert task["gpu"] == {
        "gpus": ["0"],
        "memory": 40 * GIB,
        "memory_total": 140 * GIB,
        "power": 612.5,
        "utilization": 0.97,
    }
    assert 0 < task["metrics"]["mfu"] < 1
    assert "97%  42.9/150 GB  612 W" in oarlock("status", "busy").stdout
    assert "MFU" in oarlock("ps").stdout
    board = Path(run.spec().folders["logs"]) / "training"
    tags = {"mfu", "oarlock/gpu_memory", "oarlock/gpu_power", "oarlock/gpu_utilization"}
    eventually(lambda: tags <= {tag for tag, _, _ in points_in(board)}, "figures for TensorBoard")
    (folder / "enough").touch()
    eventually(lambda: run.state().is_final, "end")
    assert "97%" in oarlock("status", "busy").stdout  # what it said last
    assert any(line.startswith("worker-0 on GPU 0: 97%") for line in texts(oarlock("events", "busy").stdout))


def test_a_gpu_with_room_is_open_before_its_task_dies(
    oarlock: Command, folder: Path, cuda_library: CudaLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cuda_library.env.items():
        monkeypatch.setenv(name, value)
    write(folder / "train.py", OPENS)
    oarlock("run", "-d", "--name", "opens")
    run = runs.find("opens")
    eventually(
        lambda: cuda_library.calls.exists() and opened(cuda_library) == 2, "a second process on the GPU"
    )
    pid = run.state().tasks["worker-0"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: opened(cuda_library) >= 3, "the next one")  # which finds it open, and opens it
    (folder / "enough").touch()
    eventually(lambda: run.state().is_final, "end")
    assert "generation 2 finds (0,)" in oarlock("logs", "opens").stdout


@pytest.fixture
def kept(
    oarlock: Command, folder: Path, cuda_library: CudaLibrary, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kept]:
    """Runs of a program that opens a GPU, with `--warm`; at the end nothing stays."""
    for name, value in cuda_library.env.items():
        monkeypatch.setenv(name, value)
    write(folder / "train.py", USES + OPENS)
    (folder / "enough").touch()
    kept = Kept(oarlock)
    yield kept
    for keeper in filter(is_running, kept.keepers):
        os.kill(keeper, signal.SIGTERM)
    until_gone([*kept.keepers, *kept.seen])


class Kept:
    def __init__(self, oarlock: Command) -> None:
        self.oarlock = oarlock
        self.keepers: list[int] = []
        self.seen: set[int] = set()  # all processes below them

    def run(self, *options: str, warm: str = "1m") -> str:
        """What a run prints."""
        name = f"run-{len(self.keepers)}"
        done = self.oarlock("run", "--name", name, "--warm", warm, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        self.keepers += [event["keeper"] for event in runs.find(name).events() if event["kind"] == "ready"]
        return done.stdout

    def below(self) -> list[int]:
        """The processes of the newest keeper: the next run's zygote, and what stands by in it."""
        found = processes.descendants(self.keepers[-1])
        self.seen.update(found)
        return found

    def until_prepared(self) -> None:
        eventually(lambda: len(self.below()) == 2, "what stands by for the next run")


def test_the_next_run_finds_gpus_open_that_this_one_has_used(kept: Kept, folder: Path) -> None:
    first = kept.run()
    assert "generation 1 finds ()" in first
    note = f"process {kept.keepers[0]} will also keep the GPUs open, with about 0.5 GiB of the memory of each"
    assert note in first
    for _ in range(2):
        kept.until_prepared()
        said = kept.run()
        assert "generation 1 finds (0,)" in said
        assert note in said
    kept.until_prepared()
    write(folder / "train.py", "import jax\n" + TRAINS)
    assert note not in kept.run()
    assert kept.below() == []
    assert len(set(kept.keepers)) == 1


def test_beside_another_run_gpus_are_not_opened_ahead(kept: Kept, folder: Path) -> None:
    kept.run()
    kept.until_prepared()
    (folder / "enough").unlink()
    for name, found in (("one", "finds (0,)"), ("other", "finds ()")):
        kept.oarlock("run", "-d", "--name", name, "--warm", "1m")
        eventually(lambda: "finds" in kept.oarlock("logs", name).stdout, "its first line")  # noqa: B023
        assert found in kept.oarlock("logs", name).stdout
        pid = runs.find(name).state().tasks["worker-0"].pid
        eventually(lambda: len(processes.descendants(zygote_of(pid))) == 2, "what stands by for it")  # noqa: B023
    before = set(kept.below())
    kept.oarlock("stop", "one", "--now")
    eventually(lambda: not runs.find("one").is_held(), "the end of its agent")
    assert set(kept.below()) < before
    (folder / "enough").touch()
    eventually(lambda: runs.find("other").state().is_final, "the end of the other")
    kept.until_prepared()


def zygote_of(pid: int | None) -> int:
    fields = processes.stat_fields(Path(f"/proc/{pid}"))
    assert fields is not None
    return int(fields[1])


NOT_OPEN: dict[str, tuple[str, ...]] = {
    "each run has its own network": ("--set", "network=private"),
    "the run asks for none": ("--set", "roles.worker.gpu=0"),
    "what stands by is gone": (),
    "the GPU is for one process at a time": (),
}


@pytest.mark.parametrize("why", NOT_OPEN)
def test_the_next_run_opens_them_itself_if(why: str, kept: Kept, nvml_library: NvmlLibrary) -> None:
    if "network" in why and private_network.refusal() is not None:
        pytest.skip("this machine does not allow network: private")
    if "one process" in why:
        nvml_library.say((*BUSY[:-1], "NVIDIA H200 exclusive"), BUSY)
    first = kept.run(*NOT_OPEN[why])
    assert ("will also keep" in first) == ("gone" in why)
    if "gone" in why:
        kept.until_prepared()
        for pid in kept.below():
            os.kill(pid, signal.SIGKILL)
    assert "generation 1 finds ()" in kept.run(*NOT_OPEN[why])
    assert len(set(kept.keepers)) == 1


@pytest.mark.parametrize("how", ["alone", "killed", "asked", "outdated"])
def test_gpus_do_not_stay_open_without_their_keeper(
    how: str, kept: Kept, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(folder / "packages"))
    (folder / "packages").mkdir()
    kept.run(warm="5s" if how == "alone" else "1m")
    kept.until_prepared()
    below, keeper = kept.below(), kept.keepers[0]
    if how in ("killed", "asked"):
        os.kill(keeper, signal.SIGKILL if how == "killed" else signal.SIGTERM)
    elif how == "outdated":
        (folder / "packages" / "new.py").touch()
        assert "generation 1 finds ()" in kept.run()
        assert len(set(kept.keepers)) == 2
    until_gone([keeper, *below])


def opened(library: CudaLibrary) -> int:
    return library.calls.read_text().count("opened 0")


def texts(table: str) -> list[str]:
    """The lines of `oarlock events` without their times."""
    return [line.partition("  ")[2].strip() for line in table.splitlines()]


def test_memory_that_runs_out_at_the_same_step_ends_the_run(oarlock: Command, folder: Path) -> None:
    write(folder / "train.py", FULL)
    done = oarlock("run", "--name", "full")
    state = runs.find("full").state()
    assert (done.returncode, state.restarts, state.generation) == (1, 1, 2)
    said = done.stdout + done.stderr
    advice = "GPU 0 (NVIDIA H200) ran out of memory: 20.00 GiB more asked for, 3.10 GiB of 139.80 GiB free;"
    assert f"worker-0 failed: {advice}" in said
    assert advice.replace("20.00", "21.00") in said
    assert "use smaller batches" in said
    assert "not restarted: the memory of a GPU ran out twice without a new step in between" in said


def test_a_crash_is_explained_by_the_last_words(oarlock: Command, folder: Path) -> None:
    write(folder / "train.py", CRASHES)
    done = oarlock("run", "--name", "crash")
    assert done.returncode != 0
    assert "GPU 0 (NVIDIA H200): a collective of NCCL never ended;" in done.stdout + done.stderr
