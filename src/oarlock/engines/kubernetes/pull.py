"""Bringing what a run has made from its cluster to this machine.

While the leader runs it is asked itself; after that a pod of ours mounts the claim. Either way
the folders come as one stream, are unpacked beside where they will be, and are put there only when all
of them are complete.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from oarlock.agent.spec import Spec
from oarlock.engines.kubernetes import exec, sending, storepod, unpacking
from oarlock.engines.kubernetes.api import Api, ApiError
from oarlock.engines.kubernetes.labels import LEAD, selecting
from oarlock.engines.pulled import Pulled, is_taken, put
from oarlock.errors import OarlockError
from oarlock.runs import RunFolder

# What can be asked for, and the folders that it means, as they are called here.
KINDS = {
    "model": ("model",),
    "checkpoints": ("checkpoints",),
    "logs": ("leader", "tensorboard"),
    "data": ("data",),
    "all": ("model", "checkpoints", "leader", "tensorboard", "data"),
}
DEFAULT = ("model", "leader")

_ENDING = 2.0  # seconds in which a leader that hangs up may turn out to have ended

Show = Callable[[int, int], None]  # bytes so far, of how many


def fetch(api: Api, run: RunFolder, names: Sequence[str], to: Path, show: Show, *, replaces: bool) -> Pulled:
    """Bring these folders; all of them, or an OarlockError and none."""
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
            with suppress(OSError):  # somebody else has put something there
                to.rmdir()
        if isinstance(problem, ApiError) and problem.status == 0:
            raise OarlockError(
                f"the pull was cut: {problem}; nothing in {to} was changed, try again"
            ) from None
        raise
    pulled.elsewhere = elsewhere
    pulled.absent = [name for name in names if name not in elsewhere and name not in pulled.folders]
    return pulled


def _fetch(
    api: Api, run: RunFolder, names: Sequence[str], wanted: list[tuple[str, str]], to: Path, show: Show
) -> Pulled:
    with tempfile.TemporaryDirectory(dir=to, prefix=".pull-") as beside:
        place = Path(beside) / "new"
        pulled = _receive_somehow(api, run, wanted, place, show) if wanted else Pulled("")
        for name in names:
            if is_taken(place / name):
                put(place / name, to / name, Path(beside))
                pulled.folders[name] = to / name
    return pulled


def _sources(run: RunFolder, names: Sequence[str]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Name here and path there; and what is not in the cluster at all."""
    spec = Spec.from_json((run.path / "agent.json").read_text())
    places = {**spec.folders, "tensorboard": spec.folders["logs"]}
    wanted: list[tuple[str, str]] = []
    elsewhere: dict[str, str] = {}
    for name in names:
        if name == "leader":
            wanted += [(f"leader/{part}", f"{spec.folder}/{part}") for part in _RECORD]
        elif "://" in places[name]:
            elsewhere[name] = places[name]
        else:
            wanted.append((name, places[name]))
    return wanted, elsewhere


_RECORD = ("events.jsonl", "result.json", "logs")


def _receive_somehow(
    api: Api, run: RunFolder, wanted: list[tuple[str, str]], place: Path, show: Show
) -> Pulled:
    pod = leader(api, run.name)
    if pod is not None:
        try:
            return _receive(api, pod, wanted, place, show)
        except ApiError as error:
            if error.status in (401, 403) or not has_ended(api, run.name):
                raise
            shutil.rmtree(place, ignore_errors=True)  # it has ended in the middle: its claim is still there
    with storepod.mounted(api, run) as pod:
        return _receive(api, pod, wanted, place, show)


def leader(api: Api, run: str) -> str | None:
    for pod in api.all("Pod", f"{selecting(run)},{LEAD}=true"):
        if storepod.is_up(pod):
            return str(pod["metadata"]["name"])
    return None


def has_ended(api: Api, run: str) -> bool:
    deadline = time.monotonic() + _ENDING
    while leader(api, run) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _receive(api: Api, pod: str, wanted: list[tuple[str, str]], place: Path, show: Show) -> Pulled:
    place.mkdir(parents=True)
    script = Path(sending.__file__).read_text()
    command = exec.Command(api, pod, ["python3", "-c", script, json.dumps(wanted)])
    pieces = _counted(command, show)
    try:
        files, size = unpacking.unpack(pieces, place)
    except OarlockError as problem:
        if isinstance(problem, ApiError):
            raise
        for _ in pieces:  # to its end: if the sender failed, its reason counts
            pass
        _check(command, pod)
        raise
    for _ in pieces:
        pass
    _check(command, pod)
    told = json.loads(bytes(command.stderr).splitlines()[-1])
    if told["files"] != files:
        raise OarlockError(f"{told['files']} files were sent from pod {pod}, {files} arrived")
    return Pulled(pod, changed=told["changed"], skipped=told["skipped"], files=files, size=size)


def _counted(command: exec.Command, show: Show) -> Iterator[bytes]:
    count = 0
    for piece in command.output():
        count += len(piece)
        yield piece
        show(count, _total(command))


def _total(command: exec.Command) -> int:
    first, newline, _ = command.stderr.partition(b"\n")
    try:
        return int(json.loads(first)["total"]) if newline else 0
    except (ValueError, KeyError, TypeError):
        return 0


def _check(command: exec.Command, pod: str) -> None:
    if command.code != 0:
        said = bytes(command.stderr).decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise OarlockError(f"pod {pod} could not send it (exit code {command.code}): {said[-1]}")
