"""What of a program's folder stays behind: its ignore files, and those above it, read as git reads them.

What .gitignore leaves out stays behind, as git would have it; .oarlockignore, in the same syntax, has the
last word. Where .gitignore leaves a whole folder out, its line `!data/small.csv` still fetches that one file.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pathspec import GitIgnoreSpec


@dataclass(frozen=True)
class Ignored:
    """What the ignore files that reach a folder say of what is in it."""

    prefix: str  # from the repository's root to the program's folder
    git: tuple[_IgnoreFile, ...] = ()  # the nearest first
    own: tuple[_IgnoreFile, ...] = ()
    only_fetched: bool = False  # .gitignore leaves this folder out: only what .oarlockignore fetches travels

    @classmethod
    def above(cls, folder: Path) -> Ignored:
        """What is said from outside the folder, up to the root of its repository, if it is in one."""
        root = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
        exclude = root / ".git" / "info" / "exclude"
        ignored = cls("", git=(_IgnoreFile.read(exclude, 0),) if exclude.is_file() else ())
        way = ""
        for name in folder.relative_to(root).parts:
            ignored = ignored.at(root / way, way)
            way += f"{name}/"
        return replace(ignored, prefix=way)

    def at(self, place: Path, here: str) -> Ignored:
        """And what the folder's own ignore files say, first of all."""
        git, own = place / ".gitignore", place / ".oarlockignore"
        start = len(self.prefix) + len(here)
        joined = self
        if git.is_file() and not git.is_symlink():  # git does not follow a link there
            joined = replace(joined, git=(_IgnoreFile.read(git, start), *self.git))
        if own.is_file():
            joined = replace(joined, own=(_IgnoreFile.read(own, start), *self.own))
        return joined

    def ask(self, path: str, is_folder: bool) -> Ignored | None:
        """None for what stays behind, otherwise what is known inside of it."""
        path = self.prefix + path
        leaves_out = _verdict(self.own, path, is_folder)
        if leaves_out is None:
            leaves_out = self.only_fetched or _verdict(self.git, path, is_folder)
            if leaves_out and is_folder and _is_on_the_way(self.own, path):
                return replace(self, only_fetched=True)
        return None if leaves_out else replace(self, only_fetched=False)


@dataclass(frozen=True)
class _Line:
    regex: re.Pattern[str]
    leaves_out: bool
    only_folders: bool = False

    def matches(self, path: str, is_folder: bool) -> bool:
        if self.only_folders and not is_folder:
            return False
        matched = self.regex.search(path)
        # pathspec marks with this group that a folder above the path was meant. git asks about each folder
        # on the way by itself, and so do we: only then can `!build` be followed by `*.o`.
        return matched is not None and matched.groupdict().get("ps_d") is None


@dataclass(frozen=True)
class _IgnoreFile:
    start: int  # where a path relative to this file's folder begins
    lines: list[_Line] = field(default_factory=list)
    # The folders on the way to what a `!` line fetches back: `!data/eu/small.csv` has data and data/eu.
    ways: list[_Line] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, start: int) -> _IgnoreFile:
        text = os.fsdecode(file.read_bytes().removeprefix(b"\xef\xbb\xbf"))
        read = cls(start)
        for line in text.split("\n"):
            read._take(_trimmed(line.removesuffix("\r")))
        return read

    def _take(self, text: str) -> None:
        only_folders = text.endswith("/")
        text = text.removesuffix("/")
        line = _compiled(text, only_folders)
        if line is None:
            return
        self.lines.insert(0, line)  # the last that matches decides
        if line.leaves_out:
            return
        parts = text[1:].lstrip("/").split("/")
        for end in range(1, len(parts)):
            # `!**/small.csv` could be anywhere: for that no ignored folder is searched.
            way = _compiled("/" + "/".join(parts[:end])) if set(parts[:end]) != {"**"} else None
            if way:
                self.ways.append(way)


def _trimmed(line: str) -> str:
    """Without the spaces at its end, but for one that a backslash protects."""
    text = line.rstrip(" ")
    is_protected = (len(text) - len(text.rstrip("\\"))) % 2 == 1
    return text + " " if is_protected and text != line else text


def _compiled(text: str, only_folders: bool = False) -> _Line | None:
    try:
        with warnings.catch_warnings():  # a strange `[[` is not for the launcher to report
            warnings.simplefilter("ignore")
            patterns = list(GitIgnoreSpec.from_lines([text]).patterns)
    except (ValueError, re.error):
        return None  # git takes a line it cannot read for one that matches nothing
    if not patterns or patterns[0].include is None or patterns[0].regex is None:
        return None  # empty, or a comment
    return _Line(patterns[0].regex, patterns[0].include, only_folders)


def _verdict(files: Iterable[_IgnoreFile], path: str, is_folder: bool) -> bool | None:
    for file in files:
        for line in file.lines:
            if line.matches(path[file.start :], is_folder):
                return line.leaves_out
    return None


def _is_on_the_way(files: Iterable[_IgnoreFile], path: str) -> bool:
    return any(way.matches(path[file.start :], True) for file in files for way in file.ways)
