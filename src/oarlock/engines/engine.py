"""The interface of an engine, and how the engine of a run is found.

Verbs, screens and the Python API ask an `Engine` for whatever depends on where a run is. They never ask which
engine it is: what differs is a method, or a fact in `Traits`.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from oarlock.engines.before_start import BeforeStart
from oarlock.engines.known_engines import Listed, listed, listed_for
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.system.polling import wait_for

if TYPE_CHECKING:  # reading job files is not needed to look at a run, nor HTTP and logs to start one
    from oarlock.engines.shared.checkpoint_place import CheckpointFolder
    from oarlock.engines.shared.command_streams import Streams
    from oarlock.engines.shared.predictor import Predictor
    from oarlock.engines.shared.pull_result import Pulled, Show
    from oarlock.engines.shared.serve_order import ServeOrder
    from oarlock.engines.shared.standing_board import StandingBoard
    from oarlock.engines.shared.tensorboard_process import Board
    from oarlock.job.job_file import JobFile
    from oarlock.records.watch import Found, Watch
    from oarlock.run.run_events import Event
    from oarlock.serving.fleet.announcement import Announcement


def engine_called(name: str) -> Engine:
    """Return the engine of that name. Raises JobError if there is none."""
    return _loaded(listed(name))


def engine_of(run: RunFolder) -> Engine:
    """Return the engine that runs it. Raises OarlockError if this Oarlock does not have that engine."""
    return _loaded(listed_for(run))


def _loaded(found: Listed) -> Engine:
    module, _, kind = found.where.partition(":")
    engine: Engine = getattr(importlib.import_module(module), kind)()
    return engine


def follow(watch: Watch) -> Iterator[Found]:
    """Yield new events and log lines of a run until it has ended."""
    with engine_of(watch.run).following(watch.run) as is_live:
        yield from watch.follow(is_live)


class Sending(NamedTuple):
    """The files of the program's folder that are about to be sent."""

    files: int
    size: int  # bytes
    withheld: Sequence[str]  # files that stay here because they may hold credentials
    warnings: Sequence[str] = ()  # what the program will miss there


def _ignore(sending: Sending) -> None:
    pass


def _go_on(problem: str) -> bool:
    return True


@runtime_checkable
class Engine(BeforeStart, Protocol):
    """Where runs run.

    The methods without a default are what an engine must have. The others are abilities: an engine that
    inherits the default raises OarlockError, or has nothing to do.
    """

    @abstractmethod
    def start(
        self,
        jobfile: JobFile,
        name: str | None = None,
        *,
        machines: int | None = None,
        on_send: Callable[[Sending], None] = _ignore,
        stdin: int | None = None,
    ) -> RunFolder:
        """Create a run's record and start the run; the run outlives this process.

        `machines` emulates that many machines, where `traits.options` has it. `on_send` is called before
        anything leaves this machine. `stdin` is a descriptor that the leader task reads, where
        `traits.options` has it; else no task has any input. Raises JobError if the job cannot run or the name
        is taken.
        """

    @abstractmethod
    def resume(self, run: RunFolder, *, stdin: int | None = None) -> None:
        """Resume a run that has ended, with its job unchanged, in the next generation. `stdin`: see `start`.

        Raises OarlockError if the run is still running, has succeeded or is gone.
        """

    @abstractmethod
    def cancel(self, run: RunFolder, *, now: bool = False) -> None:
        """Ask a run to stop, and return at once. `now` kills its tasks without their grace.

        Raises OarlockError if the run cannot be reached.
        """

    def stop(self, run: RunFolder, *, now: bool = False) -> None:
        """Stop a run and wait until it has ended and its record is complete.

        Raises OarlockError if it does not end within its grace and `traits.stop_seconds`.
        """
        seconds = (0 if now else run.grace()) + self.traits.stop_seconds
        with self.following(run) as is_live:
            self.cancel(run, now=now)
            try:
                wait_for(lambda: not is_live(), f"end of {run.name}", seconds)
            except TimeoutError:
                more = "" if now else f"; `oarlock stop --now {run.name}` kills it"
                raise OarlockError(f"{run.name} has not ended after {seconds:g} s{more}") from None

    @abstractmethod
    def ask(self, run: RunFolder, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send one question to the leading agent and return its answer.

        Raises UnreachableError while the agent does not answer.
        """

    @abstractmethod
    def delete(self, chosen: Collection[RunFolder], *, now: bool, volumes: bool) -> list[str]:
        """Delete what the runs have outside of their records; end those that are running.

        Returns the names of claims that were kept: all of them, unless `volumes`. Raises OarlockError before
        anything is deleted if one of the runs cannot be deleted.
        """

    @abstractmethod
    def refresh(self, run: RunFolder, *, with_logs: bool = False) -> None:
        """Bring the record up to date once: its events and, `with_logs`, its tasks' output.

        Raises OarlockError if the run cannot be reached, and UnknownRun if it was never started completely.
        """

    @abstractmethod
    def following(self, run: RunFolder) -> AbstractContextManager[Callable[[], bool]]:
        """Keep the record up to date inside a `with` block.

        The value is a function that returns whether the run may still write to its record. It raises
        OarlockError if the run can no longer be followed.
        """

    def check_scale(self, run: RunFolder, workers: int) -> None:
        """Raise JobError if the run cannot have that many workers, before its leading agent is asked."""

    def scale(self, run: RunFolder, workers: int) -> None:
        """Provide machines for that many workers, after the leading agent has agreed."""

    def serve(
        self, order: ServeOrder, name: str | None = None, on_wait: Callable[[str], bool] = _go_on
    ) -> RunFolder:
        """Create the record of a model server and start it; it outlives this process.

        An engine that waits until the server answers calls `on_wait` meanwhile, with what delays the server;
        False gives up. Raises JobError if this model cannot be served here or the name is taken.
        """
        raise OarlockError(f"the engine {self.name} cannot serve models")

    def predictors(
        self, order: ServeOrder, workers: int, notify: Callable[[str], None]
    ) -> AbstractContextManager[Sequence[Predictor]]:
        """Load a model inside a `with` block in that many processes or pods, which answer this client alone.

        `notify` is called with what the user should know while they start. Raises OarlockError.
        """
        raise OarlockError(f"the engine {self.name} cannot predict")

    def announced(self, run: RunFolder) -> Announcement | None:
        """Return what a model server says about itself; None before it answers requests."""
        return None

    def scale_server(self, run: RunFolder, replicas: int) -> None:
        """Give a model server that many replicas, and wait until that many answer."""
        raise self._unable(run, "scale a model server")

    def adopt(self, name: str) -> RunFolder | None:
        """Create a record for a run that another machine started; None if there is no such run."""
        return None

    def unrecorded(self) -> list[str]:
        """Return the names of runs that can be adopted. Raises OarlockError if they cannot be listed."""
        return []

    def exec(
        self, run: RunFolder, task: str, words: Sequence[str], streams: Streams, notify: Callable[[str], None]
    ) -> int:
        """Run a command where a task runs, with the task's folder and variables; return its exit code.

        `notify` is called with what the user should know before the command starts. May replace this process
        by the command. Raises OarlockError if the task's machine cannot be reached.
        """
        raise self._unable(run, "run commands beside its tasks")

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
        """Run a command, or a shell if there are no `words`, in the run's folder; return its exit code.

        `notify` is called with where the command runs, before it starts. May replace this process. Raises
        JobError if the engine does not use images, and OarlockError if the folder cannot be reached.
        """
        raise self._unable(run, "open a shell beside its files")

    def tensorboard(
        self, run: RunFolder, port: int | None, image: str | None
    ) -> AbstractContextManager[Board]:
        """Run TensorBoard on the run's LOG_DIR inside a `with` block.

        Raises JobError if the engine does not use images, and OarlockError if TensorBoard is not installed.
        """
        raise self._unable(run, "show TensorBoard")

    def deploy_board(self, run: RunFolder, image: str | None, host: str | None) -> StandingBoard:
        """Deploy a TensorBoard on the run's LOG_DIR, until it is deleted; return it once it answers.

        `host` is the name by which others reach it from outside. An existing one is returned as it is.
        """
        raise self._unable(run, "keep a TensorBoard")

    def find_board(self, run: RunFolder) -> StandingBoard | None:
        """Return the TensorBoard that is deployed for the run, if there is one."""
        return None

    def delete_board(self, run: RunFolder) -> bool:
        """Delete the TensorBoard that is deployed for the run. Returns whether there was one."""
        return False

    def checkpoints(self, run: RunFolder, *, writes: bool) -> AbstractContextManager[CheckpointFolder]:
        """Open the run's folder of checkpoints inside a `with` block; `writes` allows deleting."""
        raise self._unable(run, "list checkpoints")

    def pull(self, run: RunFolder, what: str | None, to: Path, show: Show, *, replaces: bool) -> Pulled:
        """Copy what the run has written to this machine: all of `what`, or an OarlockError and nothing."""
        raise self._unable(run, "copy its files to this machine")

    def evaluate(
        self,
        run: RunFolder,
        step: int | None,
        *,
        everything: bool,
        output: IO[bytes],
        notify: Callable[[str], None],
    ) -> list[Event]:
        """Score checkpoints of a run with its evaluator: the newest, that of `step`, or all that it has kept.

        Returns a `report` for each score. `output` is a file that gets what the program prints; `notify` is
        called with what the user should know before that. Raises OarlockError, with the program's exit code,
        if the program fails, and if this engine cannot score that run.
        """
        raise self._unable(run, "score its checkpoints")

    def pods(self, run: RunFolder) -> list[str]:
        """Return the names of the pods in which its tasks run."""
        raise self._unable(run, "list its pods")

    def remove_pod(self, run: RunFolder, fault: str, pod: str) -> str | None:
        """Inflict one of `traits.pod_faults` on a pod; return why the cluster refused, if it did."""
        raise self._unable(run, "remove its pods")

    def _unable(self, run: RunFolder, what: str) -> OarlockError:
        return OarlockError(f"{run.name}: the engine {self.name} cannot {what}")
