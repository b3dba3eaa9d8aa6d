"""The manifest of a checkpoint or snapshot: its name, what it describes, and how it is checked. Pure.

A manifest is JSON with its own checksum. It may come from a failed disk, a bucket or another user, so
`unseal` is the only way to read one.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any, TypedDict

from oarlock.system.safe_names import stays_inside

FILE_NAME = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"step-([0-9]{1,18})-g([0-9]{1,18})")
_CRC32 = re.compile("[0-9a-f]{8}")
_DAMAGED = "its manifest is damaged"

Manifest = dict[str, Any]


class FileEntry(TypedDict):
    """What a manifest says about one file."""

    size: int
    crc32: str


class WrittenEntry(FileEntry, total=False):
    """The same, plus what the writing machine noted."""

    untouched: str  # what `store.fingerprint` returned for it then


def name_of(step: int, generation: int) -> str:
    """The folder name of the checkpoint taken before `step`."""
    return f"step-{step:010d}-g{generation}"


def position(name: str) -> tuple[int, int] | None:
    """Step and generation of a checkpoint's folder name; None if it is not one."""
    matched = _NAME.fullmatch(name)
    return (int(matched[1]), int(matched[2])) if matched else None


def sealed(manifest: Manifest) -> bytes:
    """The content of manifest.json: the manifest and its checksum."""
    return json.dumps({"crc32": seal(manifest), "manifest": manifest}).encode()


def seal(manifest: Manifest) -> str:
    """A manifest's checksum: it changes when anything in the manifest does."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def unseal(data: bytes) -> Manifest | str:
    """The manifest in `data`, checked; or what is wrong with it."""
    try:
        outer = json.loads(data)
        manifest: Manifest = outer["manifest"]
        if outer["crc32"] != seal(manifest):
            return "its manifest has changed since it was written"
        if manifest["format"] != FORMAT:
            return f"it has format {str(manifest['format'])[:20]}, and this version reads {FORMAT}"
        files, metrics = manifest["files"], manifest.get("metrics") or {}
        makes_sense = (
            isinstance(files, dict) and isinstance(metrics, dict) and all(map(_is_entry, files.values()))
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _DAMAGED
    if not makes_sense:
        return _DAMAGED
    for name in files:
        folders = [name[:at] for at, character in enumerate(name) if character == "/"]
        if not stays_inside(name) or name == FILE_NAME or any(folder in files for folder in folders):
            return f"its manifest names a file that cannot be in it ({name[:80]!a})"
    return manifest


def is_not_of(manifest: Manifest, step: int, generation: int) -> str | None:
    """None if the manifest belongs to that step and generation, else what is wrong."""
    held = manifest.get("step"), manifest.get("generation")
    if all(type(value) is int and value >= 0 for value in held) and held == (step, generation):
        return None
    return "its manifest is not of its step and generation"


def _is_entry(file: Any) -> bool:
    """Whether it is a FileEntry."""
    size, crc = file["size"], file["crc32"]
    return type(size) is int and size >= 0 and isinstance(crc, str) and _CRC32.fullmatch(crc) is not None
