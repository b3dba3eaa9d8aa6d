"""A task's checkpoints: restore the newest one, and save the program's objects from time to time.

Rank 0 writes what is the same on all ranks; if a state is spread over ranks (FSDP), each writes its part.
All ranks restore the same checkpoint: the newest whole one. `State` and the Keras callbacks both use this.
"""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oarlock.checkpoints import initial_weights
from oarlock.checkpoints.initial_weights import BEGINS
from oarlock.checkpoints.manifest import FORMAT
from oarlock.checkpoints.retention import Retention
from oarlock.checkpoints.safetensors import TensorFile
from oarlock.checkpoints.store import Checkpoint, FencedError, Store
from oarlock.training.saving import program_code, writer_handle
from oarlock.training.saving.new_checkpoints import ONLY
from oarlock.training.saving.save_messages import NotSaved, Save, as_json
from oarlock.training.task import channel
from oarlock.training.task.context import Context, current
from oarlock.training.task.gpu_values import OnTheWay, is_awaited
from oarlock.training.tensors import capture, taken_weights
from oarlock.training.tensors.tensor_bytes import Leaf, Piece

_LAST_SAVE = 3600.0  # seconds for the last save of a run; an agent that asked it to stop waits less


class CheckpointSession:
    """From the restore to the last save of one training loop."""

    def __init__(self, retention: Retention | None = None) -> None:
        self.task: Context = current()
        self.retention = retention or Retention()
        self.step = 0  # of the newest checkpoint that was restored or is being written
        self.checkpoint: Checkpoint | None = None  # the restored one
        self._saved: tuple[dict[str, Any], dict[str, list[Piece]]] = ({}, {})  # its content
        self.extra: dict[str, Any] = {}  # further entries of the manifest
        self._store = Store(_folder(self.task))
        self._writer = writer_handle.WriterHandle()
        self._code: dict[str, str] | None = None
        self._is_warned = False

    @property
    def folder(self) -> Path:
        """The folder of checkpoints."""
        return self._store.folder

    def take_over(self) -> None:
        """Call before the first step: from now on only this process saves. What dead ones left is removed.
        Under a launcher, the leading agent did this before the generation started."""
        if not self.task.is_launched:
            self._store.raise_fence(self.task.run, self.task.generation)
            self._store.clean()

    # Restoring

    def restore(self, objects: dict[str, Any]) -> None:
        """Restore all objects from the newest whole checkpoint; do nothing if there is none."""
        checkpoint, complaints = self._store.newest(_offered(self.task))
        for complaint in complaints:
            self.say(complaint)
        if checkpoint is None:
            if self.task.is_evaluator:
                self.say("no checkpoint yet: this State is untrained until state.follow() yields one")
            return
        self.restore_from(checkpoint, objects)
        if self.checkpoint is None:
            return
        self._compare_code(checkpoint)
        verb = "restored" if self.task.is_evaluator else "resuming from"
        self.say(f"{verb} step {checkpoint.step} ({checkpoint.name})")

    def restore_from(self, checkpoint: Checkpoint, objects: dict[str, Any]) -> None:
        """Restore all objects from this checkpoint; if it is another run's, only the weights. Raises
        ValueError if they do not fit, and OSError if it is deleted in the meantime."""
        files = [TensorFile(checkpoint.path / name) for name in checkpoint.manifest["files"]]
        saved: dict[str, list[Piece]] = {}
        for file in files:
            for name, shape in file.shapes.items():
                saved.setdefault(name, []).append((shape, file.bytes_of(name)))
        tree, origin = files[0].tree, initial_weights.origin(checkpoint.manifest)
        if origin is not None:
            self._begin_with(origin, tree, saved, objects)
            return
        self._saved = tree, saved
        missing = sorted(objects.keys() - tree.keys())
        try:
            if missing:
                raise capture.MismatchError(f"it has no {', '.join(missing)}")
            for name in objects:
                objects[name] = capture.restore(name, objects[name], tree[name], saved)
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"{checkpoint.name} in {self._store.folder} does not fit this program:\n"
                f"  {_shortly(error)}.\n"
                "  Use another folder (storage.checkpoints), or delete it (`oarlock checkpoints`)"
            ) from error
        self.checkpoint, self.step = checkpoint, checkpoint.step

    def _begin_with(
        self, origin: str, tree: dict[str, Any], saved: dict[str, list[Piece]], objects: dict[str, Any]
    ) -> None:
        """Take the weights of another run. Otherwise this run is new and starts at step 0."""
        try:
            taken = taken_weights.take(objects, tree, saved)
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"the weights of {origin}, do not fit this program:\n  {_shortly(error)}.\n"
                "  Begin without them (--from, storage.weights), or with a model of the same shapes"
            ) from error
        self.say(f"{BEGINS} {origin}: {', '.join(taken)}")

    def say_done(self, total: int) -> None:
        """Say that nothing is left to do: the user of a second `python train.py` would wonder."""
        if self.checkpoint is not None:
            folder = self._store.folder
            self.say(f"all {total} steps are done; to train again, empty {folder} or use another folder")

    def restore_later(self, name: str, value: Any) -> Any:
        """Restore, once, what did not exist when the rest was restored. None if it was not saved."""
        tree, saved = self._saved
        if name not in tree:
            return None
        return capture.restore(name, value, tree.pop(name), saved)

    def _compare_code(self, checkpoint: Checkpoint) -> None:
        before, now = checkpoint.manifest["code"], self._code_now()
        changed = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
        if changed:
            self.say(f"{', '.join(changed)} changed since step {checkpoint.step} was saved")

    def know_batches(self, batches: dict[str, Any] | None) -> None:
        """Record which examples a step uses, and say so if that has changed since the checkpoint."""
        self.extra["batches"] = batches
        before = self.checkpoint.manifest.get("batches") if self.checkpoint else None
        if before and batches:
            for name in sorted(before.keys() & batches.keys()):
                if before[name] != batches[name]:
                    change = f"{name.replace('_', ' ')} was {before[name]} and is {batches[name]} now"
                    self.say(f"{change}: from step {self.step} on, steps mean other examples")

    # Saving

    def prepare(self, objects: Mapping[str, Any]) -> None:
        """Start the writer ahead of the first save, so that it is as quick as the others."""
        leaves, _ = self._capture(objects)
        if self._writes(leaves):
            self._writer.prepare(leaves)

    def save(
        self, step: int, objects: Mapping[str, Any], metrics: Mapping[str, Any], epoch: int | None
    ) -> bool:
        """Copy the state as it is before `step`. False if the previous copy is still being written.

        Every rank calls this before the same step: all ranks read some values together."""
        began = time.monotonic()
        self.poll()
        leaves, tree = self._capture(objects)
        if not self._writes(leaves) or (self._writer.is_busy and not _is_spread(leaves)):
            writer_handle.join_collectives(leaves)
            return self.task.rank != 0
        while self._writer.is_busy:  # the other ranks' parts are on their way, so this one must follow
            self.poll(1.0)
        known = {name: one if is_awaited(one) else as_json(one) for name, one in metrics.items()}
        self._writer.save(leaves, tree, self._request(step, leaves, epoch), OnTheWay(known))
        self.step = step
        if self.task.is_chief:
            paused = time.monotonic() - began
            channel.send({"kind": "checkpoint", "step": step, "seconds": paused})
        return True

    def finish(self, patience: float = _LAST_SAVE) -> None:
        """Wait until the save in flight is on the disk."""
        deadline = time.monotonic() + patience
        while self._writer.is_busy:
            self.poll(max(0.0, deadline - time.monotonic()))
            if self._writer.is_busy and time.monotonic() > deadline:
                self.say(f"the checkpoint of step {self.step} was not written within {patience:g} s")
                return

    def poll(self, wait: float = 0.0) -> None:
        """Receive the writer's answer. Reports a failing disk once, and once when it works again."""
        answer = self._writer.answer(wait)
        if isinstance(answer, NotSaved):
            if answer.is_fenced:
                raise FencedError(answer.reason)
            self.step = -1  # nothing newer is on the disk: save at the next opportunity
            if not self._is_warned:
                self.say(f"a checkpoint could not be saved, retrying: {answer.reason}")
            self._is_warned = True
        elif answer is not None and self._is_warned:
            self._is_warned = False
            self.say(f"checkpoints are saved again: {answer.name}")

    @property
    def is_busy(self) -> bool:
        """Whether a save is in flight."""
        return self._writer.is_busy

    def close(self) -> None:
        """Stop the writer."""
        self._writer.close()

    def say(self, text: str) -> None:
        """Log once for the whole gang, from rank 0: to the record, or to stderr without a launcher. An
        evaluator logs for itself."""
        if not self.task.is_chief and not self.task.is_evaluator:
            return
        if self.task.is_launched:
            self.task.note(text)
        else:
            print(f"oarlock: {text}", file=sys.stderr, flush=True)

    def _capture(self, objects: Mapping[str, Any]) -> tuple[dict[str, Leaf], dict[str, Any]]:
        leaves: dict[str, Leaf] = {}
        return leaves, {name: capture.capture(name, value, leaves) for name, value in objects.items()}

    def _writes(self, leaves: Mapping[str, Leaf]) -> bool:
        return self.task.is_chief or (_is_spread(leaves) and self.task.rank > 0)

    def _request(self, step: int, leaves: dict[str, Leaf], epoch: int | None) -> Save:
        rank, parts, file = self.task.rank, 1, "state.safetensors"
        if _is_spread(leaves):
            parts, file = self.task.world, f"state-{rank}-of-{self.task.world}.safetensors"
            if rank != 0:  # what is the same on all ranks is in rank 0's part
                for name in [name for name, leaf in leaves.items() if leaf.shape.whole is None]:
                    del leaves[name]
        manifest = {
            "format": FORMAT,
            "run": self.task.run,
            "generation": self.task.generation,
            "step": step,
            "epoch": epoch,
            "saved": time.time(),
            "world": self.task.world,
            "code": self._code_now(),
            **self.extra,
        }
        return Save(str(self._store.folder), file, rank, parts, manifest, self.retention)

    def _code_now(self) -> dict[str, str]:
        if self._code is None:
            self._code = program_code.checksums()
        return self._code


def _shortly(error: Exception) -> str:
    return textwrap.shorten(str(error), 500, placeholder=" ...").rstrip(".")


def _folder(task: Context) -> Path:
    folder = os.environ.get("CHECKPOINT_DIR", "")
    if "://" in folder:
        raise ValueError(
            f"checkpoints are written to a folder, not to {folder}: set storage.snapshots to that URL,"
            " and they are copied there"
        )
    return task.checkpoints.absolute()


def _offered(task: Context) -> list[str] | None:
    """The checkpoints that the agent offers to every rank of this generation: all must choose the same. An
    evaluator has no rank and starts before the first checkpoint: it may choose any."""
    names = os.environ.get(ONLY if task.is_evaluator else "OARLOCK_CHECKPOINTS")
    return None if names is None else names.split()


def _is_spread(leaves: Mapping[str, Leaf]) -> bool:
    return any(leaf.shape.whole is not None for leaf in leaves.values())
