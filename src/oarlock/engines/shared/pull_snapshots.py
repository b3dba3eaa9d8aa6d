"""Copy snapshots of a run to this machine: checksums are compared, and files are put into place only when all
of them have arrived."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.engines.shared.pull_result import Pulled, Show, check_room, is_taken, put_all
from oarlock.engines.shared.snapshot_store import Snapshots
from oarlock.errors import OarlockError

KINDS = ("model", "checkpoints")


def bring(
    spec: Spec, kinds: Sequence[str], step: int | None, to: Path, show: Show, *, replaces: bool, is_ours: bool
) -> Pulled:
    """Copy the newest complete snapshot of each kind, or the checkpoint of a step.

    `is_ours`: this machine sent the run. Raises OarlockError, and then copies nothing.
    """
    if not spec.snapshots:
        raise OarlockError(f"{spec.run} keeps no snapshots: its job has no storage.snapshots")
    kept = Snapshots(spec, is_ours)
    chosen = {
        kind: name for kind in kinds if (name := kept.choose(kind, step if kind == "checkpoints" else None))
    }
    if step is not None and "checkpoints" not in chosen:
        raise OarlockError(f"{kept.url} has no complete snapshot of step {step}")
    finals = {kind: _final(to, kind, name) for kind, name in chosen.items()}
    taken = [path for path in finals.values() if is_taken(path)]
    if taken and not replaces:
        raise OarlockError(f"{taken[0]} exists: choose another --to, or --force to replace it")
    pulled = Pulled(kept.url, absent=[kind for kind in kinds if kind not in chosen])
    if chosen:
        _bring(kept, chosen, finals, to, show, pulled)
    return pulled


def _bring(
    kept: Snapshots, chosen: dict[str, str], finals: dict[str, Path], to: Path, show: Show, pulled: Pulled
) -> None:
    total, so_far = sum(kept.size(name) for name in chosen.values()), 0
    for final in finals.values():
        if final.parent.is_symlink():
            raise OarlockError(
                f"{final.parent} is a link, and files are not written through links: choose another --to"
            )

    def on_piece(count: int) -> None:
        nonlocal so_far
        so_far += count
        show(so_far, total)

    is_new = not to.exists()
    to.mkdir(parents=True, exist_ok=True)
    try:
        check_room(total, to)
        with tempfile.TemporaryDirectory(dir=to, prefix=".pull-") as beside:
            for kind, name in chosen.items():
                (Path(beside) / kind).mkdir()
                files, size = kept.bring(name, Path(beside) / kind, on_piece)
                pulled.files, pulled.size = pulled.files + files, pulled.size + size
            for final in finals.values():
                final.parent.mkdir(exist_ok=True)
            put_all([(Path(beside) / kind, final) for kind, final in finals.items()], Path(beside))
            pulled.folders |= finals
    except (OarlockError, OSError) as problem:
        why = f"{to} cannot be written: {problem.strerror}" if isinstance(problem, OSError) else problem
        raise OarlockError(f"{why}; nothing in {to} was changed") from None
    finally:
        if is_new:
            with suppress(OSError):  # it is not empty
                to.rmdir()


def _final(to: Path, kind: str, name: str) -> Path:
    """The final path; without the number that tells snapshots of one name apart."""
    return to / name.partition("_")[0] if kind == "model" else to / "checkpoints" / name.partition("_")[0]
