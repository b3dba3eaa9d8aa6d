"""A folder in which TensorBoard finds several runs side by side, one folder for each.

The agent of a run on this machine has written event files: its folder is a link to them. Those of any other
run (on a cluster, of an earlier version, with a LOG_DIR in a bucket) are made here from the events in its
record, and continued as the record grows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oarlock.agent.record.board_files import EventFile, board_folder, event_files
from oarlock.engines.known_engines import traits_of
from oarlock.records import late_scores
from oarlock.records.run_folder import RunFolder
from oarlock.run.accounting import step_of
from oarlock.run.board_points import point_of
from oarlock.run.run_events import decode
from oarlock.run.run_state import RunState


class RecordedBoard:
    """The folder of some runs. `urls`: by run, the LOG_DIRs in buckets, for TensorBoard to read itself."""

    def __init__(self, folder: Path, runs: Sequence[RunFolder]) -> None:
        self.folder = folder
        self.urls: dict[str, str] = {}
        self._conversions: list[Conversion] = []
        for run in runs:
            self._add(run)

    def refresh(self) -> None:
        """Add what has happened since."""
        for one in self._conversions:
            one.read_more()

    def close(self) -> None:
        """Close all files."""
        for one in self._conversions:
            one.close()

    def _add_late_scores(self, run: RunFolder) -> None:
        """Show the scores that `oarlock evaluate` has added: in any order, and the latest of each step."""
        scores = {step_of(score): score for score in late_scores.read(run.scores_file)}
        file = EventFile(self.folder / f"{run.name}.evaluate")
        state = RunState(run.name)
        for _, score in sorted(scores.items(), key=lambda one: one[0] or 0):
            state.apply(score)
            point = point_of(score, state)
            if point is not None:
                file.add(point)
        file.close()

    def _add(self, run: RunFolder) -> None:
        self._add_late_scores(run)
        place = self.folder / run.name
        if not traits_of(run).files_are_here:
            self._conversions.append(Conversion(run, place))
            return
        logs = run.folder("logs")
        if "://" in logs:
            self.urls[run.name] = logs
            self._conversions.append(Conversion(run, place))
            return
        theirs = board_folder(logs, str(run.path), run.name)
        if event_files(theirs, ours=True) or not has_reports(run):
            place.symlink_to(theirs, target_is_directory=True)
            is_shown = theirs == logs
        else:  # of an earlier version
            self._conversions.append(Conversion(run, place))
            is_shown = False
        if not is_shown and event_files(logs, ours=False):
            (self.folder / f"{run.name}.LOG_DIR").symlink_to(logs, target_is_directory=True)


class Conversion:
    """Event files that are made from the events of a record."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        self._path = run.events_file
        self._folder = folder
        self._state = RunState(run.name)
        self._files: dict[str, EventFile] = {}
        self._position = 0
        folder.mkdir(exist_ok=True)
        self.read_more()

    def read_more(self) -> None:
        """Convert the whole lines that were added since."""
        try:
            with self._path.open("rb") as lines:
                lines.seek(self._position)
                for line in lines:
                    if not line.endswith(b"\n"):
                        break  # half a line: it is still being written
                    self._position += len(line)
                    self._convert(line.decode(errors="replace"))
        except FileNotFoundError:
            pass  # nothing has happened yet, or the run was deleted

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _convert(self, line: str) -> None:
        event = decode(line)
        if event is None:
            return
        self._state.apply(event)
        point = point_of(event, self._state)
        if point is not None:
            self._files.setdefault(point.folder, EventFile(self._folder / point.folder)).add(point)


@contextmanager
def gathered(runs: Sequence[RunFolder]) -> Iterator[RecordedBoard]:
    """Make the folder of some runs, which is deleted at the end of the `with` block."""
    with tempfile.TemporaryDirectory(prefix="oarlock-board-") as folder:
        board = RecordedBoard(Path(folder), runs)
        try:
            yield board
        finally:
            board.close()


def has_reports(run: RunFolder) -> bool:
    """Return whether any task has reported progress."""
    return any(event["kind"] == "report" for event in run.events())


def has_own_files(run: RunFolder) -> bool:
    """Return whether the program has written event files, as far as its leading agent has seen."""
    return any(event["kind"] == "logs" for event in run.events())
