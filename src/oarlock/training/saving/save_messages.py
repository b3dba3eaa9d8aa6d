"""What a program and its writer process say to each other. Pure.

A file descriptor of the shared memory accompanies `UseMemory`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Union

from oarlock.checkpoints.manifest import Manifest
from oarlock.checkpoints.retention import Retention
from oarlock.run.message_kinds import MessageKinds
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.typed import build

# To the writer


@dataclass(frozen=True)
class UseMemory:
    """From now on the state is in this shared memory."""


@dataclass(frozen=True)
class Save:
    """Write the copy in shared memory to the disk. Rank 0 commits the checkpoint; the others add a part."""

    folder: str  # of checkpoints
    file: str  # this rank's file inside the checkpoint
    rank: int
    parts: int  # number of files of all ranks together
    manifest: Manifest  # without "files", which the writer adds
    retention: Retention
    header: bytes = b""  # of the file, before the tensors
    size: int = 0  # bytes of tensors in shared memory
    is_retry: bool = False  # an earlier writer died during this save, perhaps after its commit

    @property
    def step(self) -> int:
        """The step before which the state was captured."""
        step: int = self.manifest["step"]
        return step

    def with_metrics(self, metrics: Mapping[str, Any]) -> Save:
        """The same request with these metrics in the manifest."""
        known = {name: as_json(value) for name, value in metrics.items()}
        return replace(self, manifest={**self.manifest, "metrics": known})

    def retried(self) -> Save:
        """The same request for the writer that replaces a dead one."""
        return replace(self, is_retry=True)

    def to_data(self) -> dict[str, Any]:
        """Encode the header as text, one character for each byte."""
        return {**asdict(self), "header": self.header.decode("latin-1")}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Save:
        """Decode a request. Raises ValueError if a field is missing or has the wrong type."""
        header = data.get("header")
        if not isinstance(header, str) or not isinstance(data.get("manifest"), dict):
            raise ValueError("a save without header or manifest")
        return build(
            cls,
            data,
            header=header.encode("latin-1"),
            manifest=data["manifest"],
            retention=build(Retention, data.get("retention")),
        )


def as_json(value: Any) -> Any:
    """A metric as JSON can hold it: JSON has no NaN."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    except RuntimeError:  # the device failed, or gave this memory to another value
        return None
    return number if math.isfinite(number) else str(number)


Request = Union[UseMemory, Save]
REQUESTS: MessageKinds[Request] = MessageKinds({"use_memory": UseMemory, "save": Save})

# From the writer


@dataclass(frozen=True)
class Saved:
    """The checkpoint is committed, or this rank's part of it is on the disk."""

    name: str


@dataclass(frozen=True)
class NotSaved:
    """The earlier checkpoints are unchanged. `is_fenced`: another generation writes to the folder now."""

    reason: str
    is_fenced: bool = False


Answer = Union[Saved, NotSaved]
ANSWERS: MessageKinds[Answer] = MessageKinds({"saved": Saved, "not_saved": NotSaved})
