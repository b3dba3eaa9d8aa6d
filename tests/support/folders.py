"""Folders with ignore files, and what travels of them."""

from __future__ import annotations

from pathlib import Path

from oarlock.program import bundle


def write(folder: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def ignore(folder: Path, *lines: str, file: str = ".gitignore") -> None:
    write(folder, file, text="\n".join(lines) + "\n")


def packed(folder: Path) -> set[str]:
    """What travels, the ignore files apart."""
    files = bundle.pack(folder).files
    return {path for path in files if not path.endswith(("gitignore", "oarlockignore"))}
