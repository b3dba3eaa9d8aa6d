"""The local engine: one agent on this machine hosts all tasks, and owns the run.

The client only makes the record and starts the agent; a killed client changes nothing.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import yaml

from oarlock.agent.protocol.spec import Spec
from oarlock.checkpoints import bucket
from oarlock.engines.shared import specs
from oarlock.errors import JobError, OarlockError
from oarlock.job.job_file import JobFile
from oarlock.job.model import Duration, Job, to_data
from oarlock.records import runs
from oarlock.run import cluster, events
from oarlock.run.run_state import FINAL, fold
from oarlock.run.typed import VERSION
from oarlock.system import machine_id, private_network, processes
from oarlock.system.atomic_file import write_durably


def start(jobfile: JobFile, name: str | None = None, machines: int = 1) -> runs.RunFolder:
    """Make the record and start its agent; with several `machines`, one that brings the others."""
    held: list[int] = []
    if jobfile.job.storage.snapshots and not bucket.is_here():
        raise OarlockError("storage.snapshots needs obstore: pip install 'oarlock[storage]'")
    _check_network(jobfile.job)

    def fill(draft: runs.RunFolder) -> None:
        held.append(draft.hold())  # from its first moment: never seen as lost
        job = to_data(jobfile.job)
        header = f"# {jobfile.source or jobfile.job.name}, as it ran in {jobfile.folder}\n"
        _write(draft.path / "job.yaml", header + yaml.safe_dump(job, sort_keys=False))
        _write_spec(jobfile.job, jobfile.folder, draft, machines, is_new=name is None)
        _announce(jobfile.job, draft)
        _write(draft.path / "token", secrets.token_hex(32))  # what agents and clients of this run share
        draft.keep_room()

    try:
        run = runs.create(jobfile.job.name, fill, name)
        _start_agent(run, held[-1])
    finally:
        for fd in held:
            os.close(fd)  # the agent has its own
    return run


def resume(run: runs.RunFolder) -> None:
    """Go on with a run whose agent is gone, in the next generation, with the job as it was."""
    held = run.hold()
    try:
        if run.state().state == "succeeded":
            raise OarlockError(f"{run.name} has succeeded; there is nothing to go on with")
        before = run.spec()
        job = specs.job_of((run.path / "job.yaml").read_text(), str(run.path / "job.yaml"))
        _check_network(job)
        run.keep_room()
        _write_spec(job, Path(before.cwd), run, before.machines)
        (run.path / "result.json").unlink(missing_ok=True)
        _start_agent(run, held)
    finally:
        os.close(held)  # the agent has its own


def stop(run: runs.RunFolder, *, now: bool = False) -> None:
    """SIGINT to the agent: once for a graceful end, twice to kill."""
    host = run.elsewhere()
    if host is not None:
        raise OarlockError(f"{run.name} runs on {host}; `oarlock stop {run.name}` there ends it")
    pid = _agent_pid(run)
    if pid is None:
        return
    for _ in range(2 if now else 1):
        try:
            os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            return
        if now:
            # Two signals at once are one.
            _wait_for(lambda: run.state().state in ("stopping", *FINAL) or not run.is_held(), 5)


def spec_for(job: Job, folder: Path, record: Path, machines: int = 1) -> Spec:
    """What the agent of a run with its record there is told. Creates nothing."""
    _check_machines(job, machines)
    is_linux = sys.platform == "linux"
    return replace(
        specs.resolve(job, folder, record.name),
        folder=str(record),
        cwd=str(folder),
        folders=_folders(job, folder, record),
        snapshots=_place(job.storage.snapshots, folder) if job.storage.snapshots else "",
        machines=machines,
        network=job.network,
        warm=bool(job.warm) and is_linux,
        keep=job.warm.seconds if isinstance(job.warm, Duration) and is_linux and machines == 1 else 0.0,
    )


def _agent_pid(run: runs.RunFolder) -> int | None:
    """Its process id, once it has said so; None if nobody has the run. The record may still name the agent
    before this one, whose number may be anybody's by now."""
    found: list[int] = []

    def announced() -> bool:
        pid = fold(run.name, run.events()).agent
        found[:] = [pid] if pid and machine_id.is_agent(pid, run.path) else []
        return bool(found) or not run.is_held()

    _wait_for(announced, 10)
    return found[0] if found and run.is_held() else None


def _wait_for(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.02)


_agents: list[subprocess.Popen[bytes]] = []  # of this client: kept to be reaped, not to be owned


def _start_agent(run: runs.RunFolder, held: int) -> None:
    """In a session of its own, with the lock in its hands."""
    _agents[:] = [agent for agent in _agents if agent.poll() is None]
    with (run.path / "agent.log").open("ab") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", processes.entry("oarlock.agent.__main__"), str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[held],
            start_new_session=True,
        )
    _agents.append(agent)


def _announce(job: Job, draft: runs.RunFolder) -> None:
    tasks = [task.name for task in cluster.form(specs.sizes(job))]
    event = {"t": time.time(), "kind": "run", "job": job.name, "engine": "local", "tasks": tasks}
    event.update(host=machine_id.name(), version=VERSION)
    _write(draft.path / "events.jsonl", events.encode(event) + "\n")


def _write(path: Path, text: str) -> None:
    """For nobody else to read."""
    write_durably(path, text.encode())


def _write_spec(job: Job, folder: Path, run: runs.RunFolder, machines: int, is_new: bool = False) -> None:
    record = runs.home() / "runs" / run.name  # where the draft will be
    spec = replace(spec_for(job, folder, record, machines), is_new=is_new)
    _write(run.path / "agent.json", spec.to_json())


def _check_machines(job: Job, machines: int) -> None:
    """A machine without a task would only be waited for."""
    workers = specs.sizes(job).get("worker", 0)
    if machines > max(1, workers):
        raise JobError(f"{machines} machines are too many for {workers} workers: each needs at least one")
    if machines > 1 and job.network == "private":
        raise JobError("with network: private all tasks are on one machine; leave out --machines")


def _check_network(job: Job) -> None:
    if job.network == "private" and (why := private_network.refusal()) is not None:
        raise OarlockError(
            f"this machine does not allow network: private ({why}); leave it out, or allow user namespaces"
        )


def _folders(job: Job, folder: Path, record: Path) -> dict[str, str]:
    defaults = {
        "data": runs.home() / "data" / job.name,  # outlives the run: ingest once, train often
        "checkpoints": record / "checkpoints",
        "model": record / "model",
        "logs": record / "tensorboard",
    }
    asked = {kind: getattr(job.storage, kind) for kind in defaults}
    return {
        kind: str(default) if not asked[kind] else _place(asked[kind], folder)
        for kind, default in defaults.items()
    }


def _place(text: str, folder: Path) -> str:
    return text if "://" in text else str(folder / Path(text).expanduser())
