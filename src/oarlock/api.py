"""Oarlock from Python: `oarlock.Job("train.py", workers=2).run()`.

The same fields, the same checks and the same runs as on the command line; names as in
`concurrent.futures`: submit, result, cancel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oarlock.engines.engine import follow, live
from oarlock.engines.local import local_engine
from oarlock.errors import JobError, RunFailed
from oarlock.job import runnable
from oarlock.job.job_file import JobFile
from oarlock.job.model import FieldError, parse
from oarlock.records import runs
from oarlock.records.watch import LogLine, Watch
from oarlock.run.run_state import RunState

_POLL = 0.02


class Job:
    """What to train. Checked when it is made: raises JobError."""

    def __init__(
        self,
        program: str | os.PathLike[str] | None = None,
        *,
        workers: int | str | None = None,
        name: str | None = None,
        args: Sequence[str] | str = (),
        **fields: Any,
    ) -> None:
        path = None if program is None else Path(os.path.normpath(Path(program).absolute()))
        cwd = Path.cwd()
        folder = cwd if path is None or path.is_relative_to(cwd) else path.parent
        data = {"name": name, "args": args, **fields}
        if path is not None:
            data["program"] = path.relative_to(folder).as_posix()
        if workers is not None:
            data["roles"] = _with_workers(fields.get("roles"), workers)
        self._file = JobFile(runnable.check(parse(data), folder), folder, None)

    @property
    def name(self) -> str:
        return self._file.job.name

    def submit(
        self,
        name: str | None = None,
        *,
        on: str = "local",
        namespace: str | None = None,
        context: str | None = None,
    ) -> Run:
        """Start a run, called `name` if that is given, and return at once. It outlives this process.

        `on="kubernetes"` sends it to a cluster: the kubeconfig's, the job's or the one given here.
        """
        if on == "local":
            return Run(local_engine.start(self._file, name))
        if on != "kubernetes":
            raise JobError(f"on={on!r}: expected 'local' or 'kubernetes'")
        from oarlock.engines.kubernetes import kubernetes_engine

        api = kubernetes_engine.api_for(self._file.job, context, namespace)
        return Run(kubernetes_engine.start(self._file, name, api))

    def run(self, name: str | None = None, *, quiet: bool = False, on: str = "local") -> Run:
        """Start a run and wait for it, its output on stdout; raises RunFailed. Ctrl-C stops it."""
        run = self.submit(name, on=on)
        try:
            if not quiet:
                run._show()
            run.result()
        except KeyboardInterrupt:
            run.cancel()
            raise
        return run

    def __repr__(self) -> str:
        return f"<Job {self.name}>"


class Run:
    """One execution of a job, under way or over."""

    def __init__(self, record: runs.RunFolder) -> None:
        self._record = record

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def folder(self) -> Path:
        return self._record.path

    def state(self) -> RunState:
        """What is known now; of a run on a cluster, what the cluster says now."""
        if self._record.is_remote:
            from oarlock.engines.kubernetes import kubernetes_engine

            kubernetes_engine.refresh(self._record)
        return self._record.state()

    def wait(self, timeout: float | None = None) -> RunState:
        """The state once it has ended; raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with live(self._record) as goes_on:
            while goes_on():
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} has not ended after {timeout:g} s")
                time.sleep(_POLL)
        return self.state()

    def result(self, timeout: float | None = None) -> RunState:
        """The state of a run that has succeeded; raises RunFailed with the exit code of any other."""
        state = self.wait(timeout)
        if state.state != "succeeded":
            raise _failed(state)
        return state

    def cancel(self) -> None:
        """Ask it to stop; `wait` says when it has."""
        if self._record.is_remote:
            from oarlock.engines.kubernetes import kubernetes_engine

            kubernetes_engine.ask_to_stop(self._record)
        else:
            local_engine.stop(self._record)

    def logs(self) -> Iterator[LogLine]:
        """What its tasks have written, all generations, and what they write until it ends."""
        for _, lines in follow(Watch(self._record)):
            yield from lines

    def _show(self) -> None:
        from oarlock.screens.plain import Plain  # only here: a program that submits needs no command line

        screen, following = Plain(), Watch(self._record)
        for happened, lines in follow(following):
            screen.show(following.state, happened, lines)

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.state().state}>"


def _with_workers(roles: Any, workers: int | str) -> dict[str, Any]:
    if roles is None:
        return {"worker": workers}
    if not isinstance(roles, Mapping):
        raise FieldError(("workers",), "with roles given as an object, give the workers there")
    worker = roles.get("worker")
    return {**roles, "worker": {**worker, "replicas": workers} if isinstance(worker, Mapping) else workers}


def _failed(state: RunState) -> RunFailed:
    from oarlock.screens.event_text import exit_code, first_line

    failure = state.failure
    why = first_line(failure.reason if failure else state.reason or "")
    who = f": {failure.task}" if failure else ""
    where = f" ({failure.where})" if failure and failure.where else ""
    return RunFailed(f"{state.run} {state.state}{who}: {why}{where}".rstrip(": "), exit_code(state))
