"""A run's checkpoint folder on its cluster.

While the run lasts, its leading pod answers; after that a temporary pod mounts the claim, writable only to
delete something.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from oarlock.checkpoints import manifest, store
from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.claims import claim_pod, pull_claims
from oarlock.engines.kubernetes.lifecycle.connect import explained
from oarlock.engines.shared import checkpoint_folder
from oarlock.engines.shared.checkpoint_folder import Entry
from oarlock.errors import OarlockError
from oarlock.program.bare_source import without_docstrings
from oarlock.records.run_folder import RunFolder
from oarlock.system import atomic_file, safe_names

READING = replace(claim_pod.PULL, name="checkpoints")
WRITING = replace(READING, is_writable=True)

# All modules in one argument: the words of a command are in the URL of the request, and not every proxy
# accepts a long one. The pod's own Oarlock may be older, or missing.
_START = (
    "import base64, json, sys, types, zlib\n"
    "for name, text in json.loads(zlib.decompress(base64.urlsafe_b64decode(sys.argv.pop(1)))):\n"
    "    module = sys.modules[name] = types.ModuleType(name)\n"
    "    exec(compile(text, name, 'exec'), module.__dict__)\n"
    "module.main()\n"
)


class _Entry(msgspec.Struct):
    name: str
    step: int
    generation: int
    epoch: int | float | None
    saved: float | None
    workers: int | float | None
    size: int
    metrics: dict[str, bool | int | float | str]
    where: Literal["folder"]
    state: Literal["broken", "whole", "complete"]
    why: str | None


@contextmanager
def opened(api: Api, run: RunFolder, path: str, *, writes: bool) -> Iterator[PodFolder]:
    """The folder at `path` in the pods; `writes` allows deleting. A temporary pod ends with the block."""
    with ExitStack() as pods:
        yield PodFolder(api, run, path, writes, pods)


class PodFolder:
    """A folder in a pod, with the same interface as `Folder` on this machine."""

    def __init__(self, api: Api, run: RunFolder, path: str, writes: bool, pods: ExitStack) -> None:
        self._api = api
        self._run = run
        self._path = path
        self._purpose = WRITING if writes else READING
        self._pods = pods
        self._beside: str | None = None  # the temporary pod, once there is one

    def entries(self, verifies: bool) -> list[Entry]:
        """List the checkpoints that the pod sees, without names that no checkpoint can have."""
        found = self._ask("entries", list[_Entry], verifies=verifies)
        return [msgspec.structs.asdict(one) for one in found if manifest.position(one.name)]

    def newest(self) -> str | None:
        """Return the newest whole checkpoint, by the manifests that the pod reads."""
        found: str | None = self._ask("newest", str | None)
        return found

    def fence(self) -> tuple[str, int] | None:
        """Return the run and generation in the folder's fence file, which the pod reads."""
        found: tuple[str, int] | None = self._ask("fence", tuple[str, int] | None)
        return found

    def delete(self, names: Sequence[str]) -> int:
        """Delete all of them, in one call to the pod. Raises OarlockError if the pod could not."""
        freed: int = self._ask("delete", int, names=list(names))
        return freed

    def _ask(self, do: str, answer: Any, **more: Any) -> Any:
        """Check a pod's answer: its program may have written anything there."""
        with explained():
            said = self._ask_somewhere(do, **more)
        try:
            return msgspec.json.decode(said, type=answer)
        except (ValueError, RecursionError):
            raise OarlockError(
                f"what came from the pods of {self._run.name} is not a list of checkpoints"
            ) from None

    def _ask_somewhere(self, do: str, **more: Any) -> bytes:
        order = json.dumps({"folder": self._path, "do": do, **more})
        leader = pull_claims.leader(self._api, self._run) if self._beside is None else None
        if leader is not None:
            try:
                return self._ask_in(leader, order)
            except ApiError as error:
                if error.status in (401, 403) or not pull_claims.has_ended(self._api, self._run):
                    raise
        if self._beside is None:
            self._beside = self._pods.enter_context(claim_pod.mounted(self._api, self._run, self._purpose))
        return self._ask_in(self._beside, order)

    def _ask_in(self, pod: str, order: str) -> bytes:
        words = ["python3", "-I", "-c", _START, _packed(), order]
        code, said, complaint = pod_exec.run(self._api, pod, words)
        if code:
            lines = complaint.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise OarlockError(f"pod {pod} could not do it (exit code {code}): {lines[-1]}")
        return said


def _packed() -> str:
    modules = (safe_names, atomic_file, manifest, store, checkpoint_folder)  # in the order of their imports
    sources = {one.__name__: without_docstrings(Path(one.__file__ or "").read_bytes()) for one in modules}
    texts = [(name, source.decode()) for name, source in sources.items()]
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()
