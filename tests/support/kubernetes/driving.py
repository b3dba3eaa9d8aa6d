"""Driving the real command line against the cluster: several runs at a time, and nothing left of them."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Identity, Object, selecting
from oarlock.engines.kubernetes.follow.mirror import Mirror
from oarlock.engines.kubernetes.lifecycle import identity, stop_delete
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run.run_state import RunState
from tests.support import locks
from tests.support.commands import SCRIPT
from tests.support.waiting import eventually

# The only one that the cluster knows; a `latest` would be pulled again.
TORCH = {"image": "pytorch/pytorch:latest", "pull_policy": "IfNotPresent"}
# At a program's end. A run is over when worker-0 is: then servers are stopped, and who has not begun never
# does. So it waits until all have said their words.
MEET = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
mine = config["cluster"][config["task"]["type"]][config["task"]["index"]]
others = {one for addresses in config["cluster"].values() for one in addresses} - {mine}
deadline = time.monotonic() + 250
if os.environ["POD_NAME"] != "worker-0":
    with socket.create_server(("", int(mine.rpartition(":")[2]))) as door:
        door.accept()
    others = set()
while others:
    host, _, port = min(others).rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        others.discard(min(others))
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.05)
"""


class Named(Identity):
    """Whatever runs have that name: a test knows that all of them are its own."""

    @property
    def selector(self) -> str:
        return selecting(self.name)


class Started:
    """One `oarlock run` that goes on in the background."""

    def __init__(self, name: str, driver: Driver, words: list[str], kubeconfig: Path) -> None:
        self.name = name
        self.env = driver.env(kubeconfig)
        self.process = subprocess.Popen(
            [str(SCRIPT), *words], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.out = self.err = ""

    def end(self, seconds: float = 300) -> Started:
        """Wait for it; it ends by itself."""
        if self.process.returncode is None:
            try:
                self.out, self.err = self.process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.out, self.err = self.process.communicate()
                raise AssertionError(f"{self.name} did not end within {seconds:g} s: {self.told}") from None
        return self

    def succeed(self, seconds: float = 300) -> Started:
        assert self.end(seconds).code == 0, self.told
        return self

    @property
    def code(self) -> int:
        return int(self.process.returncode)

    @property
    def told(self) -> str:
        return f"{self.out[-4000:]}\n{self.err[-2000:]}"

    @property
    def lines(self) -> dict[str, list[str]]:
        """What each task said."""
        found: dict[str, list[str]] = {}
        for line in self.out.splitlines():
            task, bar, text = line.partition(" | ")
            if bar and task != "oarlock":
                found.setdefault(task.strip(), []).append(text)
        return found


class Driver:
    """Writes jobs, starts them, and deletes all of it in the end."""

    def __init__(self, folder: Path, kubeconfig: Path, api: Api) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.api = api
        self.started: list[Started] = []
        self.jobs: list[str] = []
        self.made: list[tuple[str, str]] = []  # kind and name

    def env(self, kubeconfig: Path) -> dict[str, str]:
        home = self.folder / f"home-{kubeconfig.stem}"  # a user's own
        return {**os.environ, "KUBECONFIG": str(kubeconfig), "OARLOCK_HOME": str(home)}

    def job(self, program: str, name: str = "", **fields: Any) -> Path:
        """A folder with a program and a job file. Its name is the job's: claims are called after it."""
        folder = self.folder / (name or unused())
        folder.mkdir()
        self.jobs.append(folder.name)
        (folder / "train.py").write_text(program)
        (folder / "job.yaml").write_text(
            yaml.safe_dump({"name": folder.name, "program": "train.py", **fields})
        )
        return folder

    def start(self, target: Path, *words: str, name: str = "", kubeconfig: Path | None = None) -> Started:
        name = name or f"{target.stem}-{secrets.token_hex(2)}"
        said = ["run", "--on", "kubernetes", "--name", name, *words, str(target)]
        started = Started(name, self, said, kubeconfig or self.kubeconfig)
        self.started.append(started)
        return started

    def make(self, kind: str, name: str = "", **content: Any) -> str:
        """Something of the user's own, and its name."""
        name = name or unused()
        self.api.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content})
        self.made.append((kind, name))
        return name

    def secret(self, values: dict[str, str], name: str = "") -> str:
        return self.make("Secret", name, stringData=values)

    def claim(self, access: str = "ReadWriteOnce") -> str:
        asked = {"accessModes": [access], "resources": {"requests": {"storage": "10Mi"}}}
        return self.make("PersistentVolumeClaim", spec=asked)

    def record(self, run: str) -> RunFolder:
        return RunFolder(Path(self.env(self.kubeconfig)["OARLOCK_HOME"]) / "runs" / run)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPT), *words],
            env=self.env(self.kubeconfig),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def close(self) -> None:
        """All at once; claims last, for runs of one job share them."""
        for started in self.started:
            if started.process.poll() is None:
                started.process.kill()
                started.process.communicate()
        deleting = [self._delete(started) for started in self.started]
        told = [process.communicate()[1] for process in deleting]
        for kind, name in self.made:
            self.api.delete(kind, name)
        for job in self.jobs:
            for claim in stop_delete.claims_of(self.api, job):
                self.api.delete("PersistentVolumeClaim", claim["metadata"]["name"])
        problems = [text for text in told if "oarlock: " in text and "there is no run" not in text]
        assert not problems, problems

    def _delete(self, started: Started) -> subprocess.Popen[str]:
        words = [str(SCRIPT), "delete", "--force", started.name]
        return subprocess.Popen(
            words, env=started.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )


@contextmanager
def driving(folder: Path, kubeconfig: Path, api: Api) -> Iterator[Driver]:
    driver = Driver(folder, kubeconfig, api)
    try:
        yield driver
    finally:
        driver.close()


def written(folder: Path, text: str) -> Path:
    """A program in a new folder of its own, all of which travels. Its job, and so its claim, is called after
    it: one that tests of several processes share would be deleted by the first that ends."""
    folder.mkdir()
    program = folder / f"{unused()}.py"
    program.write_text(text)
    return program


def unused() -> str:
    """A name that nobody else has."""
    return f"prog-{secrets.token_hex(3)}"


def all_gpus() -> AbstractContextManager[None]:
    """The cluster has four, for all of the tests together: to be held by who uses them, or takes them from
    whoever has a lower priority."""
    return locks.held(Path(tempfile.gettempdir()) / "oarlock-kube-gpus.lock")


def until_all_step(driver: Driver, run: str, generation: int, size: int, seconds: float = 300) -> None:
    """Every task of the generation has reported a step of its own in it."""
    until_stepping(driver.record(run), generation, size, seconds)


def until_stepping(record: RunFolder, generation: int, size: int = 2, seconds: float = 300) -> None:
    """Every task of the generation has reported a step of its own in it."""
    eventually(
        # A client that was only just started has made no record yet.
        lambda: record.path.exists() and len(stepped(refreshed(record), generation)) == size,
        f"steps of {size} tasks in generation {generation}",
        seconds,
        evidence=lambda: told(record),
    )


def told(record: RunFolder) -> str:
    """What the record says of the run, for whoever reads that a test waited in vain."""
    if not record.path.exists():
        return "it has no record"
    return "\n".join(map(str, [record.state(), *list(record.events())[-30:]]))


def refreshed(record: RunFolder) -> RunFolder:
    """The record, brought up to date as verbs do it. A client for each look would cost 0.6 s of a processor,
    which pods and other tests need."""
    if not record.path.exists() or record.state().is_over:
        return record  # it is being sent, or needs no more
    try:
        held = record.hold(seconds=0)
    except OarlockError:
        return record  # somebody who follows the run keeps it up to date
    try:
        api = identity.reach(record)
        try:
            Mirror(record, api).catch_up(with_logs=False)
        except ApiError as error:
            if not error.is_transient:
                raise
        finally:
            api.close()
    finally:
        os.close(held)
    return record


def state_of(run: str) -> RunState:
    """The state of a run with a record in this test's home, as the cluster has it now."""
    return refreshed(runs.find(run)).state()


def pods_of(api: Api, run: str) -> dict[str, Object]:
    """By their Job's and their own number: lead-0, worker-0, ps-0."""
    pods = api.all("Pod", selecting(run))
    return {pod["metadata"]["name"].removeprefix(f"{run}-").rsplit("-", 1)[0]: pod for pod in pods}


def nodes_of(api: Api, run: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods_of(api, run).values()}


def running(api: Api, run: str, count: int) -> dict[str, Object]:
    """The run's pods, once so many have an address and run."""

    def look() -> dict[str, Object]:
        found = pods_of(api, run)
        up = [pod for pod in found.values() if pod["status"]["phase"] == "Running"]
        return found if len(up) == count else {}

    return eventually(look, f"{count} running pods of {run}")


def stepped(record: RunFolder, generation: int) -> set[str]:
    """The trainers that reported since that generation formed, if it is the latest. (A task's state keeps
    the step of the generation before, and an evaluator reports the steps of others.)"""
    happened = list(record.events()) if record.path.exists() else []
    formed = [at for at, event in enumerate(happened) if event["kind"] == "generation"]
    if not formed or happened[formed[-1]]["generation"] != generation:
        return set()
    reported = {event["task"] for event in happened[formed[-1] :] if event["kind"] == "report"}
    return {task for task in reported if not task.startswith(("evaluator", "ingest"))}


def jobs_of(api: Api, run: str) -> dict[str, Object]:
    """By their group: lead, worker, worker-2, ps."""
    jobs = api.all("Job", selecting(run))
    return {job["metadata"]["name"].removeprefix(f"{run}-"): job for job in jobs}


def all_complete(api: Api, run: str, seconds: float = 300) -> dict[str, Object]:
    """The run's Jobs, once each of them has come to its end with all of its pods."""

    def look() -> dict[str, Object]:
        found = jobs_of(api, run)
        is_done = all(job["status"].get("succeeded") == job["spec"]["completions"] for job in found.values())
        return found if is_done else {}

    return eventually(look, f"end of every Job of {run}", seconds)
