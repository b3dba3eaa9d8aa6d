"""Files between machines: the fence of a generation, and copies for machines without the volume.

On Kubernetes only the leader mounts the volume. Before a machine runs tasks, it fetches the newest
checkpoint, and what the program wrote next to itself, from the leading agent (`file_sender`), which checks
the run's token.
"""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from oarlock.agent.net import control
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import messages, wire
from oarlock.agent.snapshots.file_sender import CHECKPOINT, FILE, LIST, UNSCORED
from oarlock.agent.snapshots.program_files import ProgramFolder, WrittenFile
from oarlock.agent.snapshots.sealed_files import Incoming
from oarlock.checkpoints.manifest import position
from oarlock.checkpoints.store import Store, verify
from oarlock.run.contract import Gang
from oarlock.system.backoff import retry

MOST = 20  # checkpoints that a generation may try to resume from
_PATIENCE = 30.0  # seconds without a byte
_PAUSE = (0.2, 0.6)  # seconds before the next attempt, at random: all machines ask the same leader
_TROUBLES = (OSError, ValueError, wire.WireError)


def take_over(folder: str, run: str, generation: int) -> tuple[list[str], str | None]:
    """Raise the fence for a generation. Returns the checkpoints to resume from, newest first; any trouble."""
    if not folder or "://" in folder:
        return [], None
    store = Store(folder)
    try:
        store.raise_fence(run, generation)
        store.clean_meanwhile()  # no task of this generation can be writing yet
    except OSError as error:
        return store.names()[:MOST], f"{folder}: {error.strerror or error}"
    return store.names()[:MOST], None


# A machine without the volume


class Getting:
    """Fetches checkpoints, and files that the leader's program has written, into this machine's folders."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        token: str,
        folder: str,
        patience: float,
        program: ProgramFolder | None = None,
    ) -> None:
        self._loop = loop
        self._address = address
        self._token = token
        self._store = Store(folder)
        self._patience = patience
        self._program = program  # None if all machines share one folder
        self._is_busy = False
        self._receiving = threading.Lock()  # an evaluator's feed receives, too
        self.has_unscored: Callable[[], bool] = lambda: True  # `Supply.has_unscored`; a feed sets its own

    def has(self, gang: Gang) -> bool:
        """Whether there is nothing to fetch: what the gang's tasks resume from is here."""
        return self._has_checkpoint(gang.checkpoints) and self._has_files(gang.files)

    def _has_checkpoint(self, names: Sequence[str]) -> bool:
        return not names or names[0] in self._store.names()

    def _has_files(self, version: str) -> bool:
        return not version or self._program is None or self._program.fetched == version

    def unscored(self) -> list[str]:
        """Ask the leading agent for the names of unscored checkpoints, oldest first. Raises OSError,
        ValueError or WireError."""
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            return messages.names(control.Dialogue(line, self._token).ask({"ask": UNSCORED}))

    def get(self, gang: Gang, then: Callable[[str | None], None]) -> None:
        """Fetch what is missing, then call `then` in the loop with None, or with what went wrong."""
        if self._is_busy:
            return
        self._is_busy = True
        ours, theirs = socket.socketpair()
        result: list[str | None] = []

        def work() -> None:
            with theirs:
                result.append(self._fetch(gang))

        def on_done() -> None:
            self._loop.forget(ours)
            ours.close()
            self._is_busy = False
            then(result[0] if result else "fetching it failed")

        self._loop.watch(ours, on_done)
        threading.Thread(target=work, name="oarlock-get", daemon=True).start()

    def _fetch(self, gang: Gang) -> str | None:
        trouble = None if self._has_checkpoint(gang.checkpoints) else self._fetch_checkpoint(gang.checkpoints)
        if trouble is None and not self._has_files(gang.files):
            trouble = self._fetch_files(gang.files)
        return trouble

    def _fetch_checkpoint(self, names: Sequence[str]) -> str | None:
        self._store.folder.mkdir(parents=True, exist_ok=True)
        left = list(names)

        def attempt() -> None:
            while left and not self.receive(left[0]):
                left.pop(0)  # it is damaged or deleted: try the one before it

        try:
            retry(attempt, _TROUBLES, self._patience, _PAUSE)
        except _TROUBLES as error:
            return f"no checkpoint came from the leader within {self._patience:g} s: {error}"
        if left:  # otherwise none is whole, and the leader finds the same
            self._forget_all_but(names)
        return None

    def receive(self, name: str, is_hurried: bool = True) -> bool:
        """Fetch one checkpoint, for tasks that wait for it (`is_hurried`). False if it is damaged or gone."""
        if position(name) is None:
            return False  # no checkpoint has such a name; it could lead out of the folder
        draft = self._store.folder / f".saving-fetched-{name}"
        with self._receiving:
            if _is_whole(self._store.folder / name):
                return True
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            try:
                return self._ask(CHECKPOINT, name, draft, is_hurried) and self._adopt(draft, name)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def _ask(self, what: str, name: str, folder: Path, is_hurried: bool = True) -> bool:
        """Fetch the files that the leader sends for this question into a folder. False if there are none."""
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            dialogue = control.Dialogue(line, self._token)
            question = {"ask": what, "name": name, **({} if is_hurried else {"do": UNSCORED})}
            files = messages.files(dialogue.ask(question))
            incoming = Incoming(line, *dialogue.rest())
            for file, size in files:
                incoming.into(folder / file, size)
        return bool(files)

    def _fetch_files(self, version: str) -> str | None:
        """Fetch all files that the leader's program wrote next to itself and that differ here."""
        program = self._program
        assert program is not None

        def attempt() -> None:
            for file in program.lacking(self._listed()):
                with program.receiving(file) as folder:
                    self._ask(FILE, file.name, folder)
            program.set_fetched(version)

        try:
            retry(attempt, _TROUBLES, self._patience, _PAUSE)
        except _TROUBLES as error:
            return f"the files beside the leader's program did not arrive: {error}"
        return None

    def _listed(self) -> list[WrittenFile]:
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            listed = control.Dialogue(line, self._token).ask({"ask": LIST})
        return [WrittenFile(*one) for one in messages.program_files(listed)]

    def _adopt(self, draft: Path, name: str) -> bool:
        if is_whole := _is_whole(draft):
            self._store.adopt(draft, name)
        return is_whole

    def _forget_all_but(self, names: Sequence[str]) -> None:
        """Free disk space. The folder belongs to this machine alone, or nothing would have been fetched."""
        for checkpoint in self._store.checkpoints():
            if checkpoint.name not in names:
                self._store.delete(checkpoint)


def _is_whole(folder: Path) -> bool:
    read = Store.read(folder)
    return not isinstance(read, str) and verify(read) is None
