"""A run's folder of checkpoints on its cluster: the leading pod is asked while it runs, after that a pod of
ours that mounts the claim, for writing only where something is to be deleted."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock.engines import checkpoints
from oarlock.engines.checkpoints import Entry
from oarlock.engines.kubernetes import exec, pull, storepod
from oarlock.engines.kubernetes.api import Api, ApiError
from oarlock.errors import OarlockError
from oarlock.runs import RunFolder
from oarlock.training import store

READING = replace(storepod.PULL, name="checkpoints")
WRITING = replace(READING, is_writable=True)

# Two modules from one argument: the words of a command are in the address of the request, and not every
# server between us and the pod takes a long one. The pod's own Oarlock may be older, or not there at all.
_START = (
    "import base64, json, sys, types, zlib\n"
    "for name, text in json.loads(zlib.decompress(base64.urlsafe_b64decode(sys.argv.pop(1)))):\n"
    "    module = sys.modules[name] = types.ModuleType(name)\n"
    "    exec(compile(text, name, 'exec'), module.__dict__)\n"
    "module.main()\n"
)


@contextmanager
def opened(api: Api, run: RunFolder, path: str, *, writes: bool) -> Iterator[PodFolder]:
    with ExitStack() as pods:
        yield PodFolder(api, run, path, writes, pods)


class PodFolder:
    """As `Folder` on this machine."""

    def __init__(self, api: Api, run: RunFolder, path: str, writes: bool, pods: ExitStack) -> None:
        self._api = api
        self._run = run
        self._path = path
        self._purpose = WRITING if writes else READING
        self._pods = pods
        self._beside: str | None = None  # our own pod, once there is one

    def look(self, verifies: bool) -> list[Entry]:
        found: list[Entry] = self._ask("look", verifies=verifies)
        return found

    def newest(self) -> str | None:
        found: str | None = self._ask("newest")
        return found

    def fence(self) -> tuple[str, int] | None:
        found: list[Any] | None = self._ask("fence")
        return (str(found[0]), int(found[1])) if found else None

    def delete(self, names: Sequence[str]) -> int:
        return int(self._ask("delete", names=list(names)))

    def _ask(self, do: str, **more: Any) -> Any:
        order = json.dumps({"folder": self._path, "do": do, **more})
        leader = pull.leader(self._api, self._run.name) if self._beside is None else None
        if leader is not None:
            try:
                return self._ask_in(leader, order)
            except ApiError as error:
                if error.status in (401, 403) or not pull.has_ended(self._api, self._run.name):
                    raise
        if self._beside is None:
            self._beside = self._pods.enter_context(storepod.mounted(self._api, self._run, self._purpose))
        return self._ask_in(self._beside, order)

    def _ask_in(self, pod: str, order: str) -> Any:
        words = ["python3", "-c", _START, _packed(), order]
        code, said, complaint = exec.run(self._api, pod, words)
        if code:
            lines = complaint.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise OarlockError(f"pod {pod} could not do it (exit code {code}): {lines[-1]}")
        return json.loads(said)


def _packed() -> str:
    texts = [(module.__name__, Path(module.__file__ or "").read_text()) for module in (store, checkpoints)]
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()
