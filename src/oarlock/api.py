"""Oarlock from Python: `oarlock.Job("train.py", workers=2).run()`.

It has the same fields, checks and runs as the command line. Method names follow
`concurrent.futures`: submit, result, cancel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock.engines.engine import engine_called, engine_of, follow
from oarlock.errors import RunFailed
from oarlock.job import runnable
from oarlock.job.job_file import JobFile
from oarlock.job.model import FieldError, parse, to_data
from oarlock.records.log_blocks import LogLine
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Watch
from oarlock.run.run_state import RunState
from oarlock.system.polling import wait_for

_POLL = 0.02


class Job:
    """A training job. Creating it checks all fields and raises JobError if one is wrong."""

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
        """The job's name."""
        return self._file.job.name

    def submit(
        self,
        name: str | None = None,
        *,
        on: str = "local",
        namespace: str | None = None,
        context: str | None = None,
    ) -> Run:
        """Start a run and return at once; the run outlives this process.

        `on="kubernetes"` submits it to a cluster: the one given here, the job's, or the kubeconfig's. Raises
        JobError if there is no such engine or the name is taken.
        """
        engine = engine_called(on)
        return Run(engine.start(self._on_cluster(namespace=namespace, context=context), name))

    def run(self, name: str | None = None, *, quiet: bool = False, on: str = "local") -> Run:
        """Start a run, print its output and wait until it ends. Ctrl-C stops it. Raises RunFailed."""
        run = self.submit(name, on=on)
        try:
            if not quiet:
                run._show()
            run.result()
        except KeyboardInterrupt:
            run.cancel()
            raise
        return run

    def _on_cluster(self, **place: str | None) -> JobFile:
        """The job with another namespace or context."""
        given = {key: value for key, value in place.items() if value is not None}
        if not given:
            return self._file
        data = to_data(self._file.job)
        return replace(self._file, job=parse({**data, "kubernetes": {**data.get("kubernetes", {}), **given}}))

    def __repr__(self) -> str:
        return f"<Job {self.name}>"


class Run:
    """One execution of a job, running or ended."""

    def __init__(self, record: RunFolder) -> None:
        self._record = record

    @property
    def name(self) -> str:
        """The run's name."""
        return self._record.name

    @property
    def folder(self) -> Path:
        """The run's record on this machine."""
        return self._record.path

    def state(self) -> RunState:
        """Return the run's current state; for a run on a cluster, as the cluster shows it now."""
        engine_of(self._record).refresh(self._record)
        return self._record.state()

    def wait(self, timeout: float | None = None) -> RunState:
        """Wait until the run ends and return its state. Raises TimeoutError."""
        with engine_of(self._record).following(self._record) as is_live:
            try:
                wait_for(lambda: not is_live(), f"end of {self.name}", timeout, every=_POLL)
            except TimeoutError:
                raise TimeoutError(f"{self.name} has not ended after {timeout:g} s") from None
        return self.state()

    def result(self, timeout: float | None = None) -> RunState:
        """Wait for the run to end and return its state. Raises RunFailed unless it succeeds; TimeoutError."""
        state = self.wait(timeout)
        if state.state != "succeeded":
            raise _failed(state)
        return state

    def cancel(self) -> None:
        """Ask the run to stop and return at once; `wait` returns when it has ended."""
        engine_of(self._record).cancel(self._record)

    def logs(self) -> Iterator[LogLine]:
        """Yield the output of all tasks, from all generations, until the run ends."""
        for _, output in follow(Watch(self._record)):
            for block in output:
                yield from block.lines()

    def _show(self) -> None:
        from oarlock.screens.plain import Plain  # not needed by a program that only submits

        screen, following = Plain(), Watch(self._record)
        for happened, output in follow(following):
            screen.show(following.state, happened, output, following.unfinished)
        screen.close()

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
