"""Who leads, where the record can be reached by several: a word in its folder, which the youngest has.

A pod that Kubernetes has given up may live on where nobody sees it, with the volume still in its hands, and
could form generations of its own for ever. It finds another's name here, and stops; a container that is
started again inside such a pod finds it, too. One that is asked to leave may say until when it is still
saving: who comes after it waits for that.
"""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

LOOK = 1.0  # seconds between two looks at whether another leads
_POLL = 0.05


class Tenure:
    """`folder` is everybody's; `own` is this pod's, and outlives its container."""

    def __init__(self, folder: Path, own: Path) -> None:
        self._word = folder / "leader"
        self._own = own / "leader"
        self.uid = secrets.token_hex(8)
        self.is_dismissed = False  # this pod was asked to end

    def take(self, patience: float) -> bool:
        """Lead from now on, after whoever is still saving, for as long as that. False if our time is over."""
        if self._own.exists():
            self.uid = self._own.read_text()
            if self.is_over:
                return False
            self._write()
            return True
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._read().get("until", 0) > time.time():
            time.sleep(_POLL)
        self._own.write_text(self.uid)
        self._write()
        return True

    @property
    def is_over(self) -> bool:
        """Somebody else leads."""
        return bool(self._read().get("uid", self.uid) != self.uid)

    def leave(self, patience: float) -> None:
        """We go, and are saving for at most so many seconds."""
        if not self.is_over:
            self._write(until=time.time() + patience)

    def _read(self) -> dict[str, Any]:
        """Nothing, where it cannot be read: who has it stays."""
        try:
            told = json.loads(self._word.read_text())
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def _write(self, **more: float) -> None:
        draft = self._word.with_name(f".leader-{self.uid}")
        try:
            draft.write_text(json.dumps({"uid": self.uid, **more}))
            draft.replace(self._word)
        except OSError:
            draft.unlink(missing_ok=True)  # a full disk: nobody is kept from training by it
