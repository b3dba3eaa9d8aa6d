"""Saving and restoring what a task keeps: between the things of a program and the folder of checkpoints.

Rank 0 writes what all ranks have alike; where a state is spread over ranks (FSDP) each writes its part. All
ranks restore the same checkpoint: the newest whole one. Both `State` and the Keras callbacks stand on this.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import textwrap
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oarlock.checkpoints.manifest import FORMAT
from oarlock.checkpoints.retention import Retention
from oarlock.checkpoints.safetensors import TensorFile
from oarlock.checkpoints.store import Checkpoint, FencedError, Store
from oarlock.training.saving import capture, saver
from oarlock.training.saving.tensor_bytes import Leaf, Piece
from oarlock.training.task import channel
from oarlock.training.task.context import Context, current

_LAST_SAVE = 3600.0  # seconds for the last save of a run; whoever asked it to leave has less patience


class Checkpointing:
    def __init__(self, retention: Retention | None = None) -> None:
        self.task: Context = current()
        self.retention = retention or Retention()
        self.step = 0  # of the newest checkpoint that was restored or handed to the writer
        self.checkpoint: Checkpoint | None = None  # the one that was restored
        self._saved: tuple[dict[str, Any], dict[str, list[Piece]]] = ({}, {})  # what is in it
        self.extra: dict[str, Any] = {}  # what goes into the manifest besides
        self._store = Store(_folder(self.task))
        self._saver = saver.Saver()
        self._code: dict[str, str] | None = None
        self._is_warned = False
        if not self.task.is_launched:  # else the agent has, before this generation started
            self._store.raise_fence(self.task.run, self.task.generation)
            self._store.clean()

    # Going back

    def restore(self, things: dict[str, Any]) -> None:
        """Put everything where the newest whole checkpoint has it; nothing happens if there is none."""
        checkpoint, complaints = self._store.newest(_offered())
        for complaint in complaints:
            self.say(complaint)
        if checkpoint is None:
            return
        files = [TensorFile(checkpoint.path / name) for name in checkpoint.manifest["files"]]
        saved: dict[str, list[Piece]] = {}
        for file in files:
            for name, shape in file.shapes.items():
                saved.setdefault(name, []).append((shape, file.bytes_of(name)))
        tree = files[0].tree
        self._saved = tree, saved
        missing = sorted(things.keys() - tree.keys())
        try:
            if missing:
                raise capture.MismatchError(f"it holds no {', '.join(missing)}")
            for name in things:
                things[name] = capture.restore(name, things[name], tree[name], saved)
        except (ValueError, RuntimeError) as error:
            why = textwrap.shorten(str(error), 500, placeholder=" ...").rstrip(".")
            raise ValueError(
                f"{checkpoint.name} in {self._store.folder} does not fit this program:\n  {why}.\n"
                "  Name another folder (storage.checkpoints), or delete it (`oarlock checkpoints`)"
            ) from error
        self.checkpoint, self.step = checkpoint, checkpoint.step
        self._compare_code(checkpoint)
        self.say(f"going on from step {checkpoint.step} ({checkpoint.name})")

    def say_done(self, total: int) -> None:
        """Or a second `python train.py` would wonder why nothing happens."""
        if self.checkpoint is not None:
            self.say(f"all {total} steps are made; to train anew, name or empty {self._store.folder}")

    def restore_later(self, name: str, thing: Any) -> Any:
        """What could not be restored with the rest because it was not there yet; once."""
        tree, saved = self._saved
        if name not in tree:
            return None
        return capture.restore(name, thing, tree.pop(name), saved)

    def _compare_code(self, checkpoint: Checkpoint) -> None:
        before, now = checkpoint.manifest["code"], self._code_now()
        changed = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
        if changed:
            self.say(f"{', '.join(changed)} changed since step {checkpoint.step} was saved")

    def know_batches(self, batches: dict[str, Any] | None) -> None:
        """Which examples a step means. If that has changed since the checkpoint, it is said."""
        self.extra["batches"] = batches
        before = self.checkpoint.manifest.get("batches") if self.checkpoint else None
        if before and batches:
            for name in sorted(before.keys() & batches.keys()):
                if before[name] != batches[name]:
                    told = f"{name.replace('_', ' ')} was {before[name]} and is {batches[name]} now"
                    self.say(f"{told}: from step {self.step} on, steps mean other examples")

    # Saving

    def prepare(self, things: Mapping[str, Any]) -> None:
        """Before the first save, so that it is as quick as the others."""
        found, _ = self._capture(things)
        if self._writes(found):
            self._saver.prepare(found)

    def save(
        self, step: int, things: Mapping[str, Any], metrics: Mapping[str, Any], epoch: int | None
    ) -> bool:
        """Copy the state as it is before `step`. False if the last copy is still being written.

        Every rank calls this before the same step: some values are read by all together."""
        began = time.monotonic()
        self.poll()
        found, tree = self._capture(things)
        if not self._writes(found) or (self._saver.is_busy and not _is_spread(found)):
            saver.join_collectives(found)
            return self.task.rank != 0
        while self._saver.is_busy:  # the others' parts are on their way: ours has to be there, too
            self.poll(1.0)
        self._saver.save(found, tree, self._letter(step, found, metrics, epoch))
        self.step = step
        if self.task.is_chief:
            stood = time.monotonic() - began
            channel.send({"kind": "checkpoint", "step": step, "seconds": stood})
        return True

    def finish(self, patience: float = _LAST_SAVE) -> None:
        """Until the save in flight is on the disk."""
        deadline = time.monotonic() + patience
        while self._saver.is_busy:
            self.poll(max(0.0, deadline - time.monotonic()))
            if self._saver.is_busy and time.monotonic() > deadline:
                self.say(f"the checkpoint of step {self.step} was not written within {patience:g} s")
                return

    def poll(self, wait: float = 0.0) -> None:
        """Hear from the writer. A disk that fails is told once, and when it works again."""
        answer = self._saver.answer(wait)
        if answer is None:
            return
        if answer.get("fenced"):
            raise FencedError(answer["failed"])
        if "failed" in answer:
            self.step = -1  # nothing newer is safe: the next occasion is taken
            if not self._is_warned:
                self.say(f"a checkpoint could not be saved, trying again: {answer['failed']}")
            self._is_warned = True
        elif self._is_warned:
            self._is_warned = False
            self.say(f"checkpoints are saved again: {answer['saved']}")

    @property
    def is_busy(self) -> bool:
        return self._saver.is_busy

    def close(self) -> None:
        self._saver.close()

    def say(self, text: str) -> None:
        """Once for the whole gang."""
        if not self.task.is_chief:
            return
        if self.task.is_launched:
            self.task.note(text)
        else:
            print(f"oarlock: {text}", file=sys.stderr, flush=True)

    def _capture(self, things: Mapping[str, Any]) -> tuple[dict[str, Leaf], dict[str, Any]]:
        found: dict[str, Leaf] = {}
        return found, {name: capture.capture(name, thing, found) for name, thing in things.items()}

    def _writes(self, found: Mapping[str, Leaf]) -> bool:
        return self.task.is_chief or (_is_spread(found) and self.task.rank > 0)

    def _letter(
        self, step: int, found: dict[str, Leaf], metrics: Mapping[str, Any], epoch: int | None
    ) -> dict[str, Any]:
        rank, parts, file = self.task.rank, 1, "state.safetensors"
        if _is_spread(found):
            parts, file = self.task.world, f"state-{rank}-of-{self.task.world}.safetensors"
            if rank != 0:  # what all have alike is in rank 0's part
                for name in [name for name, leaf in found.items() if leaf.shape.whole is None]:
                    del found[name]
        manifest = {
            "format": FORMAT,
            "run": self.task.run,
            "generation": self.task.generation,
            "step": step,
            "epoch": epoch,
            "saved": time.time(),
            "world": self.task.world,
            "metrics": {name: _number(value) for name, value in metrics.items()},
            "code": self._code_now(),
            **self.extra,
        }
        return {
            "folder": str(self._store.folder),
            "file": file,
            "rank": rank,
            "parts": parts,
            "manifest": manifest,
            "retention": dataclasses.asdict(self.retention),
        }

    def _code_now(self) -> dict[str, str]:
        if self._code is None:
            self._code = _code()
        return self._code


def _folder(task: Context) -> Path:
    told = os.environ.get("CHECKPOINT_DIR", "")
    if "://" in told:
        raise ValueError(
            f"checkpoints are written to a folder, not to {told}: name that as storage.snapshots,"
            " and they are copied there"
        )
    return task.checkpoints.absolute()


def _offered() -> list[str] | None:
    """Those that every rank of this generation was told of: all must choose the same one."""
    told = os.environ.get("OARLOCK_CHECKPOINTS")
    return None if told is None else told.split()


def _is_spread(found: Mapping[str, Leaf]) -> bool:
    return any(leaf.shape.whole is not None for leaf in found.values())


def _number(value: Any) -> Any:
    """As JSON has it, which knows no nan."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if math.isfinite(number) else str(number)


def _code() -> dict[str, str]:
    """The checksum of every file of the program that is loaded."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is None:
        return {}
    folder = Path(main).absolute().parent
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or "site-packages" in path:
            continue
        try:
            name = str(Path(path).absolute().relative_to(folder))
            found[name] = f"{zlib.crc32(Path(path).read_bytes()):08x}"
        except (ValueError, OSError):
            continue
    return found
