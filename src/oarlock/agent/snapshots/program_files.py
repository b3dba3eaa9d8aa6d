"""The files that a program has written into its own folder, as opposed to those that were sent with it.

In a pod that folder is on the run's claim, if there is one: programs save next to themselves, and the next
pod and `oarlock pull` need what they saved. Pods without the claim get copies.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.run.quick_dataclass import dataclass
from oarlock.system.atomic_file import write_whole
from oarlock.system.safe_names import stays_inside

SENT = "sent.json"  # in the record: the names of the files that were sent
MOST = 10_000  # files that other machines get copies of
LARGEST = 16 << 30  # bytes, all of them together
_FETCHED = "files-fetched"  # in the record of a machine that has copies: their version
_PYTHONS = "__pycache__"  # Python writes this folder, not the program


@dataclass(frozen=True)
class WrittenFile:
    """A file that is not as it was sent: it was sent with time 0, and any write sets the time."""

    name: str  # relative to the program's folder
    size: int
    modified: int  # nanoseconds


@dataclass(frozen=True)
class ProgramFolder:
    """A program's folder, and the record of its run on the same machine."""

    folder: Path
    record: Path

    @classmethod
    def of(cls, spec: Spec) -> ProgramFolder:
        """The folder in which this run's tasks start."""
        return cls(Path(spec.cwd), Path(spec.folder))

    def remember_sent(self, names: Iterable[str]) -> None:
        """Note which files came with the program. Pods that share a claim all write the same."""
        write_whole(self.record / SENT, json.dumps(sorted(names)).encode(), f"{os.getpid()}-part")

    def written(self) -> list[WrittenFile]:
        """List the files that were not sent or have changed since: at most MOST + 1, and no links."""
        try:
            sent = set(json.loads((self.record / SENT).read_text()))
        except (OSError, ValueError):
            return []
        return list(
            islice((file for file in self._files() if file.modified or file.name not in sent), MOST + 1)
        )

    def _files(self) -> Iterator[WrittenFile]:
        for here, folders, names in os.walk(self.folder):
            folders[:] = sorted(set(folders) - {_PYTHONS})
            for name in sorted(names):
                path = Path(here, name)
                try:
                    found = path.lstat()
                except OSError:
                    continue  # deleted since it was listed
                if stat.S_ISREG(found.st_mode):
                    relative = path.relative_to(self.folder).as_posix()
                    yield WrittenFile(relative, found.st_size, found.st_mtime_ns)

    def paths(self, name: str) -> list[Path]:
        """The file of that name, if there is one and it is inside the folder."""
        path = self.folder / name
        inside = stays_inside(name) and self.folder.resolve() in path.resolve().parents
        return [path] if inside and path.is_file() else []

    # Copies on a machine without the claim

    @property
    def fetched(self) -> str:
        """The version of the leader's files that was last copied here."""
        try:
            return (self.record / _FETCHED).read_text()
        except OSError:
            return ""

    def set_fetched(self, version: str) -> None:
        """Note that this version of the leader's files is here."""
        (self.record / _FETCHED).write_text(version)

    def lacking(self, theirs: Iterable[WrittenFile]) -> list[WrittenFile]:
        """The leader's files that are missing or different here."""
        ours = {file.name: file for file in self._files()}
        return [file for file in theirs if ours.get(file.name) != file]

    @contextmanager
    def receiving(self, file: WrittenFile) -> Iterator[Path]:
        """Yield an empty folder for one file of the leader, then move the file into place, with its time."""
        final = self.folder / file.name
        with tempfile.TemporaryDirectory(dir=self.record, prefix=".fetching-") as draft:
            yield Path(draft)
            for received in Path(draft).iterdir():  # there is none if the leader has deleted it since
                os.utime(received, ns=(file.modified, file.modified))
                final.parent.mkdir(parents=True, exist_ok=True)
                received.replace(final)


class KeptFiles:
    """The files that the leader's program wrote next to itself: for other machines, and for the record."""

    def __init__(self, spec: Spec, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._program = ProgramFolder.of(spec)
        self._say = say
        self._is_too_much = False  # and there is a note about it

    def version(self) -> str:
        """A version that is equal for equal files. Empty if there are none, or too many to copy."""
        files = self._program.written()
        size = sum(file.size for file in files)
        if len(files) > MOST or size > LARGEST:
            if not self._is_too_much:
                self._is_too_much = True
                text = "what the program wrote beside itself is not copied to other pods: it is too much"
                self._say(f"{text} ({_amount(files)}); set kubernetes.claim.shared")
            return ""
        listed = json.dumps([(file.name, file.size, file.modified) for file in files])
        return f"v{hashlib.sha256(listed.encode()).hexdigest()[:16]}" if files else ""

    def say_what_is_kept(self) -> None:
        """Note at the end where the files are, or that they are lost."""
        files = self._program.written()
        if not files:
            return
        largest = max(files, key=lambda file: file.size).name
        what = f"{_amount(files)} that the program wrote beside itself, {largest} among them"
        if self._spec.claim:
            self._say(f"kept: {what}; oarlock pull {self._spec.run} --what files")
        else:
            self._say(f"lost with the pod: {what}; a claim keeps them (kubernetes.claim)")


def _amount(files: Sequence[WrittenFile]) -> str:
    count = (
        "1 file" if len(files) == 1 else f"{len(files)} files" if len(files) <= MOST else f"over {MOST} files"
    )
    size = float(sum(file.size for file in files))
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{count}, {size:.3g} {unit}"
        size /= 1000
    return f"{count}, {size:.1f} GB"
