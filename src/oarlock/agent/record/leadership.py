"""Which pod leads, if several can reach the record: a file in its folder names the newest leader.

A pod that Kubernetes has given up may keep running unseen, with the volume still mounted, and could form
generations of its own forever. It finds another leader's name in this file and stops; so does a container
restarted inside such a pod. A leader that is asked to leave may write how long it will still be saving, and
its successor waits for that.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from oarlock.run.quick_dataclass import dataclass
from oarlock.run.typed import build
from oarlock.system.atomic_file import write_whole
from oarlock.system.polling import wait_for

LOOK = 1.0  # seconds between two checks whether another pod leads
_POLL = 0.05


@dataclass(frozen=True)
class _Leader:
    """The content of the file."""

    uid: str
    until: float = 0.0  # until then this leader may still be saving


class Leadership:
    """This pod's leadership. All pods share `folder`; `own` is this pod's, and outlives its container."""

    def __init__(self, folder: Path, own: Path) -> None:
        self._file = folder / "leader"
        self._own = own / "leader"
        self.uid = secrets.token_hex(8)
        self.is_dismissed = False  # this pod was asked to end

    def take(self, patience: float) -> bool:
        """Lead from now on, after at most `patience` seconds for another leader to finish saving.

        Returns False if another pod has replaced this one.
        """
        if self._own.exists():
            self.uid = self._own.read_text()
            if self.is_over:
                return False
            self._write(_Leader(self.uid))
            return True
        with suppress(TimeoutError):
            wait_for(lambda: not self._is_saving(), "end of the last leader's save", patience, every=_POLL)
        self._own.write_text(self.uid)
        self._write(_Leader(self.uid))
        return True

    @property
    def is_over(self) -> bool:
        """Whether another pod leads."""
        leader = self._read()
        return leader is not None and leader.uid != self.uid

    def leave(self, patience: float) -> None:
        """Announce that this leader leaves and may still be saving for `patience` seconds."""
        if not self.is_over:
            self._write(_Leader(self.uid, until=time.time() + patience))

    def _is_saving(self) -> bool:
        leader = self._read()
        return leader is not None and leader.until > time.time()

    def _read(self) -> _Leader | None:
        """Read the file. None if that fails: then the pod that leads continues."""
        try:
            return build(_Leader, json.loads(self._file.read_text()))
        except (OSError, ValueError):
            return None

    def _write(self, leader: _Leader) -> None:
        try:
            write_whole(self._file, json.dumps(asdict(leader)).encode(), writer=self.uid)
        except OSError:
            pass  # a full disk, which must not keep a run from training
