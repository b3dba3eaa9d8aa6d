"""Bring a run's results from its cluster to this machine.

While the leader runs, its pod sends them; after that, a temporary pod mounts the claim. Either way the
folders come as one stream, are unpacked beside their destination, and are moved there only when all of them
are complete.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from oarlock.agent.snapshots.program_files import SENT
from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.claims import claim_pod, tar_receiver, tar_sender
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.shared.pull_result import Pulled, check_room, is_taken, put_all
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.system.polling import wait_for

# What a user can ask for, and the local names of its folders.
KINDS = {
    "model": ("model",),
    "checkpoints": ("checkpoints",),
    "logs": ("leader", "tensorboard"),
    "files": ("files",),
    "data": ("data",),
    "all": ("model", "checkpoints", "leader", "tensorboard", "files", "data"),
}
DEFAULT = ("model", "leader", "files")

_LONGEST_LINE = 1 << 16  # bytes of a line that the sender writes
_GROWTH = 64 << 20  # bytes by which small folders may grow while they are read; large ones may double
_MOST_REST = 1000  # pieces after the archive's end
_ENDING = 2.0  # seconds in which a leader that hangs up may turn out to have ended

# A folder: its local name, its path in the pod and, if only a part is wanted, the file that lists the rest.
Source = tuple[str, ...]
Show = Callable[[int, int], None]  # bytes so far, and in all


T = TypeVar("T", bound=msgspec.Struct)


class _Announced(msgspec.Struct):
    total: Annotated[int, msgspec.Meta(ge=0)]


class _Sent(msgspec.Struct):
    files: int
    changed: list[str]
    skipped: list[str]


def fetch(api: Api, run: RunFolder, names: Sequence[str], to: Path, show: Show, *, replaces: bool) -> Pulled:
    """Copy these folders to this machine: all of them, or none and an OarlockError."""
    wanted, elsewhere = _sources(run, names)
    taken = [to / name for name in names if is_taken(to / name)]
    if taken and not replaces:
        raise OarlockError(f"{taken[0]} is there already: choose another --to, or --force to replace it")
    is_new = not to.exists()
    to.mkdir(parents=True, exist_ok=True)
    try:
        pulled = _fetch(api, run, names, wanted, to, show)
    except BaseException as problem:
        if is_new:
            with suppress(OSError):  # another process has put something there
                to.rmdir()
        if isinstance(problem, ApiError) and problem.status == 0:
            raise OarlockError(
                f"the pull was cut: {problem}; nothing in {to} was changed, try again"
            ) from None
        if isinstance(problem, OSError):
            why = problem.strerror or problem
            raise OarlockError(f"{to} cannot be written: {why}; nothing in it was changed") from None
        raise
    pulled.elsewhere = elsewhere
    pulled.absent = [name for name in names if name not in elsewhere and name not in pulled.folders]
    return pulled


def _fetch(
    api: Api, run: RunFolder, names: Sequence[str], wanted: list[Source], to: Path, show: Show
) -> Pulled:
    with tempfile.TemporaryDirectory(dir=to, prefix=".pull-") as beside:
        place = Path(beside) / "new"
        pulled = _receive_somehow(api, run, wanted, place, show) if wanted else Pulled("")
        pulled.folders = {name: to / name for name in names if is_taken(place / name)}
        put_all([(place / name, final) for name, final in pulled.folders.items()], Path(beside))
    return pulled


def _sources(run: RunFolder, names: Sequence[str]) -> tuple[list[Source], dict[str, str]]:
    """The folders, and those that are not on the cluster."""
    spec = run.spec()
    places = {**spec.folders, "tensorboard": spec.folders["logs"]}
    wanted: list[Source] = []
    elsewhere: dict[str, str] = {}
    for name in names:
        if name == "leader":
            wanted += [(f"leader/{part}", f"{spec.folder}/{part}") for part in _RECORD]
        elif name == "files":  # those that the program has written beside itself
            wanted.append((name, spec.cwd, f"{spec.folder}/{SENT}"))
        elif "://" in places[name]:
            elsewhere[name] = places[name]
        else:
            wanted.append((name, places[name]))
    return wanted, elsewhere


_RECORD = ("events.jsonl", "result.json", "logs")


def _receive_somehow(api: Api, run: RunFolder, wanted: list[Source], place: Path, show: Show) -> Pulled:
    pod = leader(api, run)
    if pod is not None:
        try:
            return _receive(api, pod, wanted, place, show)
        except ApiError as error:
            if error.status in (401, 403) or not has_ended(api, run):
                raise
            # The leader has ended in the middle; its claim still exists.
    with claim_pod.mounted(api, run) as pod:
        return _receive(api, pod, wanted, place, show)


def leader(api: Api, run: RunFolder) -> str | None:
    """The name of the running leading pod."""
    for pod in api.all("Pod", identity.of(run).leading):
        if claim_pod.is_up(pod):
            return str(pod["metadata"]["name"])
    return None


def has_ended(api: Api, run: RunFolder) -> bool:
    """Whether the leading pod ends within a moment."""
    try:
        return wait_for(lambda: leader(api, run) is None, "end of the leader", _ENDING, 0.2)
    except TimeoutError:
        return False


def _receive(api: Api, pod: str, wanted: list[Source], place: Path, show: Show) -> Pulled:
    script = Path(tar_sender.__file__).read_text()
    command = pod_exec.Command(api, pod, ["python3", "-I", "-c", script, json.dumps(wanted)])
    with closing(command.output()) as pieces:
        try:
            files, size = _unpack(pieces, place, show)
        except OarlockError as problem:
            if not isinstance(problem, ApiError) and _is_over(pieces):
                _check(command, pod)  # if the sender failed, its reason counts
            raise
        if not _is_over(pieces):
            raise OarlockError(f"pod {pod} does not stop sending after the end of its archive")
    _check(command, pod)
    sent = _said(bytes(command.stderr).splitlines()[-1:], _Sent)
    if sent.files != files:
        raise OarlockError(f"{sent.files} files were sent from pod {pod}, {files} arrived")
    return Pulled(pod, changed=sent.changed, skipped=sent.skipped, files=files, size=size)


def _unpack(pieces: Iterator[bytes], place: Path, show: Show) -> tuple[int, int]:
    count = total = 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for piece in pieces:
            count += len(piece)
            yield piece
            show(count, total)

    stream = tar_receiver.Stream(counted())
    total = _said([stream.line(_LONGEST_LINE)], _Announced).total
    check_room(total, place.parent)
    return tar_receiver.unpack(stream, place, 2 * total + _GROWTH)


def _said(lines: list[bytes], kind: type[T]) -> T:
    try:
        return msgspec.json.decode(lines[0], type=kind)
    except (IndexError, ValueError, RecursionError):
        raise OarlockError("what came from the pod is not an archive that Oarlock wrote") from None


def _is_over(pieces: Iterator[bytes]) -> bool:
    """Whether the stream ends after a limited number of pieces."""
    return sum(1 for _ in islice(pieces, _MOST_REST)) < _MOST_REST


def _check(command: pod_exec.Command, pod: str) -> None:
    if command.code != 0:
        said = bytes(command.stderr).decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise OarlockError(f"pod {pod} could not send it (exit code {command.code}): {said[-1]}")
