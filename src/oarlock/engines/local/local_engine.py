"""The local engine: one agent process on this machine hosts all tasks and owns the run.

The client only creates the record and starts the agent: killing the client changes nothing. Verbs that only
look at a run need this module too, so it reads no job files until a run starts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from oarlock.engines import agent_process
from oarlock.engines.before_start import Finding
from oarlock.engines.engine import Engine, Sending
from oarlock.errors import JobError, OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run.run_state import FINAL, fold
from oarlock.system import machine_id
from oarlock.system.polling import wait_for

if TYPE_CHECKING:
    from oarlock.agent.protocol.spec import Spec
    from oarlock.engines.shared.checkpoint_place import CheckpointFolder
    from oarlock.engines.shared.command_streams import Streams
    from oarlock.engines.shared.predictor import Predictor
    from oarlock.engines.shared.serve_order import ServeOrder
    from oarlock.engines.shared.standing_board import StandingBoard
    from oarlock.engines.shared.tensorboard_process import Board
    from oarlock.job.job_file import JobFile
    from oarlock.run.run_events import Event
    from oarlock.serving.fleet.announcement import Announcement


class LocalEngine(Engine):
    """Runs on this machine."""

    name = "local"

    def start(
        self,
        jobfile: JobFile,
        name: str | None = None,
        *,
        machines: int | None = None,
        on_send: Callable[[Sending], None] = lambda _: None,
        stdin: int | None = None,
    ) -> RunFolder:
        """Start one agent process, which starts the other agents where there are several machines."""
        return start(jobfile, name, machines or 1, stdin)

    def ignores(self, jobfile: JobFile) -> list[str]:
        """List whatever describes pods, and GPUs where there are none."""
        from oarlock.engines.local import ignored_fields

        return ignored_fields.of(jobfile.job)

    def spec_for(self, jobfile: JobFile, record: Path, machines: int) -> Spec:
        """Return the spec with the GPUs that are free now."""
        from oarlock.engines.local import gpu_shares

        spec = super().spec_for(jobfile, record, machines)
        return replace(spec, gpus=gpu_shares.give(jobfile.job, jobfile.folder, record.name))

    def check(self, *, context: str | None, namespace: str | None, image: str | None) -> Iterator[Finding]:
        """Check this machine, then each framework, whose import takes seconds."""
        from oarlock.engines.local import framework_imports, machine_checks

        yield from (check() for check in machine_checks.CHECKS)
        yield from map(framework_imports.probe, framework_imports.NAMES)

    def resume(self, run: RunFolder, *, stdin: int | None = None) -> None:
        """Start another agent on the same record."""
        resume(run, stdin)

    def cancel(self, run: RunFolder, *, now: bool = False) -> None:
        """Send SIGINT to the agent. Raises OarlockError if the agent is on another machine."""
        stop(run, now=now)

    def ask(self, run: RunFolder, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask at the address, and with the token, that the record has."""
        from oarlock.agent.net import control

        return control.ask(run.path, dict(question))

    def check_scale(self, run: RunFolder, workers: int) -> None:
        """Raise OarlockError if one agent may not open as many files as that many tasks need."""
        from oarlock.engines.shared import local_spec

        spec = run.spec()
        sizes = {**spec.sizes, "worker": spec.tasks_of("worker", workers)}
        local_spec.check_files(sum(sizes.values()), spec.machines)

    def serve(
        self,
        order: ServeOrder,
        name: str | None = None,
        on_wait: Callable[[str], bool] = lambda _: True,
    ) -> RunFolder:
        """Start the supervisor as the only task of a run."""
        from oarlock.engines.local import local_server

        return local_server.serve(order, name, agent_process.start)

    def predictors(
        self, order: ServeOrder, workers: int, notify: Callable[[str], None]
    ) -> AbstractContextManager[Sequence[Predictor]]:
        """Load the model in the replicas of one server, on a port of its own."""
        from oarlock.engines.local import local_predictor

        return local_predictor.predictors(order, workers)

    def announced(self, run: RunFolder) -> Announcement | None:
        """Read what the supervisor writes beside its settings."""
        from oarlock.serving.fleet import announcement

        return announcement.read(announcement.path_for(run.serving_file))

    def scale_server(self, run: RunFolder, replicas: int) -> None:
        """Change the settings, which the supervisor reads again."""
        from oarlock.engines.local import local_server

        local_server.scale(run, replicas)

    def delete(self, chosen: Collection[RunFolder], *, now: bool, volumes: bool) -> list[str]:
        """Only stop runs that are running, with `now`: the caller deletes the records."""
        for run in chosen if now else ():
            if run.is_running():
                self.stop(run, now=True)
        return []

    def refresh(self, run: RunFolder, *, with_logs: bool = False) -> None:
        """Nothing to do: the agent writes the record."""

    @contextmanager
    def following(self, run: RunFolder) -> Iterator[Callable[[], bool]]:
        """Yield whether the agent lives, which holds the record's lock: until it ends, the run may write."""
        yield run.is_held

    def exec(
        self, run: RunFolder, task: str, words: Sequence[str], streams: Streams, notify: Callable[[str], None]
    ) -> int:
        """Replace this process by the command, unless the output is captured."""
        from oarlock.agent.host import import_env
        from oarlock.engines.shared import task_command

        spec = run.spec()
        if not Path(spec.cwd).is_dir():
            raise OarlockError(f"the program's folder {spec.cwd} is gone")
        order = task_command.as_task(run.state(), spec, task, words, str(run.spec_file), notify)
        if order["pid"] is not None:  # it has what the zygote had at its start, when it knew no run
            order["defaults"] = import_env.defaults(spec, sum(spec.slots_of(0).values()))
        return task_command.run_here(order, streams)

    def inspect(
        self,
        run: RunFolder,
        words: Sequence[str],
        streams: Streams,
        *,
        image: str | None,
        writes: bool,
        notify: Callable[[str], None],
    ) -> int:
        """Run in the record's folder. Replaces this process, unless the output is captured."""
        from oarlock.engines.shared import task_command

        _refuse_image(run, image)
        words = words or (os.environ.get("SHELL") or "/bin/sh",)
        return task_command.run_here(task_command.plain(words, str(run.path)), streams)

    @contextmanager
    def tensorboard(self, run: RunFolder, port: int | None, image: str | None) -> Iterator[Board]:
        """Run the TensorBoard that is installed here."""
        from oarlock.engines import side_by_side

        _refuse_image(run, image)
        with side_by_side.board([run], port, lambda _: None) as board:
            yield board

    def deploy_board(self, run: RunFolder, image: str | None, host: str | None) -> StandingBoard:
        """Raise JobError: there is no cluster that could keep it."""
        raise JobError(f"{run.name} ran on this machine; --deploy is for a run on a cluster")

    @contextmanager
    def checkpoints(self, run: RunFolder, *, writes: bool) -> Iterator[CheckpointFolder]:
        """Open the folder at the path in the run's spec."""
        from oarlock.engines.shared.checkpoint_folder import Folder

        yield Folder(run.folder("checkpoints"))

    def evaluate(
        self,
        run: RunFolder,
        step: int | None,
        *,
        everything: bool,
        output: IO[bytes],
        notify: Callable[[str], None],
    ) -> list[Event]:
        """Score on this machine, also for runs of other engines: their checkpoints are copied here first."""
        from oarlock.engines.local import score_here

        return score_here.score(run, step, everything, output.fileno(), notify)


def start(
    jobfile: JobFile, name: str | None = None, machines: int = 1, stdin: int | None = None
) -> RunFolder:
    """Create the record and start its agent; with several `machines`, an agent that starts the others.

    `stdin` is what the leader task reads.
    """
    from oarlock.engines.local import gpu_shares, local_record
    from oarlock.engines.shared import local_spec, specs

    held: list[int] = []
    local_spec.check_packages(jobfile.job)
    local_spec.check_snapshots(jobfile.job, jobfile.folder)
    local_spec.check_network(jobfile.job)
    local_spec.check_files(sum(specs.sizes(jobfile.job).values()), machines)

    def fill(draft: RunFolder) -> None:
        held.append(draft.hold())  # from the first moment: the run never looks lost
        local_record.fill(draft, jobfile, machines, is_new=name is None)

    try:
        with gpu_shares.choosing(jobfile.job):
            run = runs.create(jobfile.job.name, fill, name)
        agent_process.start(run, held[-1], stdin)
    finally:
        for fd in held:
            os.close(fd)  # the agent has its own
    return run


def resume(run: RunFolder, stdin: int | None = None) -> None:
    """Resume a run whose agent is gone, in the next generation, with its job unchanged."""
    from oarlock.engines.local import local_record

    held = run.hold()
    try:
        if run.state().state == "succeeded":
            raise OarlockError(f"{run.name} has succeeded; there is nothing to resume")
        local_record.renew(run)
        agent_process.start(run, held, stdin)
    finally:
        os.close(held)  # the agent has its own


def stop(run: RunFolder, *, now: bool = False) -> None:
    """Send SIGINT to the agent: once for a graceful end, twice to kill its tasks."""
    host = run.elsewhere()
    if host is not None:
        raise OarlockError(f"{run.name} runs on {host}; use `oarlock stop {run.name}` there")
    pid = _agent_pid(run)
    if pid is None:
        return
    for _ in range(2 if now else 1):
        try:
            os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            return
        if now:
            # Two signals at the same time arrive as one.
            _until(lambda: run.state().state in ("stopping", *FINAL) or not run.is_held(), 5)


def _agent_pid(run: RunFolder) -> int | None:
    """The process id of the agent, once it is in the record; None if no agent has the run.

    The record may still name the previous agent, whose number may be that of any process by now.
    """
    found: list[int] = []

    def announced() -> bool:
        pid = fold(run.name, run.events()).agent
        found[:] = [pid] if pid and machine_id.is_agent(pid, run.path, run.lock_file) else []
        return bool(found) or not run.is_held()

    _until(announced, 10)
    return found[0] if found and run.is_held() else None


def _until(done: Callable[[], bool], seconds: float) -> None:
    """Wait, but not longer than that: the caller checks the outcome."""
    with suppress(TimeoutError):
        wait_for(done, "answer of the agent", seconds, every=0.02)


def _refuse_image(run: RunFolder, image: str | None) -> None:
    if image:
        raise JobError(f"{run.name} ran on this machine; --image is for a run on a cluster")
