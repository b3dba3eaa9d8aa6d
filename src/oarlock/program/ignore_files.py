"""The ignore files of a program's folder, and those above it, read as git reads them.

Files that .gitignore excludes stay behind. .oarlockignore uses the same syntax and has the last word: where
.gitignore excludes a whole folder, its line `!data/small.csv` still includes that one file. Credentials stay
behind unless a line of .oarlockignore without wildcards includes them: `!*` does not.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pathspec import GitIgnoreSpec

from oarlock.program.credentials import is_credential
from oarlock.wording import printable

CREDENTIAL = "it may hold credentials"


@dataclass(frozen=True)
class Ignored:
    """The rules of all ignore files that apply inside a folder."""

    prefix: str  # from the repository's root to the program's folder
    git: tuple[_IgnoreFile, ...] = ()  # the nearest first
    own: tuple[_IgnoreFile, ...] = ()
    closed: str | None = None  # why this folder is excluded: only what .oarlockignore includes travels

    @classmethod
    def above(cls, folder: Path) -> Ignored:
        """The rules from the folders above, up to the root of the repository if there is one."""
        root = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
        exclude = root / ".git" / "info" / "exclude"
        ignored = cls("", git=(_IgnoreFile.read(exclude, 0),) if exclude.is_file() else ())
        way = ""
        for name in folder.relative_to(root).parts:
            ignored = ignored.at(root / way, way)
            way += f"{name}/"
        return replace(ignored, prefix=way)

    def at(self, place: Path, here: str) -> Ignored:
        """Add the rules of the folder's own ignore files, which come first."""
        git, own = place / ".gitignore", place / ".oarlockignore"
        start = len(self.prefix) + len(here)
        joined = self
        if git.is_file() and not git.is_symlink():  # git does not follow a link there
            joined = replace(joined, git=(_IgnoreFile.read(git, start), *self.git))
        if own.is_file():
            joined = replace(joined, own=(_IgnoreFile.read(own, start), *self.own))
        return joined

    def rules_inside(self, path: str, is_folder: bool) -> Ignored | str:
        """The rule by which an entry stays behind, or the rules that apply inside of it."""
        full = self.prefix + path
        line = _deciding(self.own, full, is_folder)
        if line is not None and line.why is not None:
            return line.why
        why = None if line else self.closed
        if line is None and why is None and (theirs := _deciding(self.git, full, is_folder)):
            why = theirs.why
        may_hold_keys = self.closed == CREDENTIAL or is_credential(path, is_folder)
        if why is None and may_hold_keys and not self.is_named(path, is_folder):
            why = CREDENTIAL
        if why is None or (is_folder and _is_on_the_way(self.own, full, by_name=why == CREDENTIAL)):
            return replace(self, closed=why)
        return why

    def is_named(self, path: str, is_folder: bool = False) -> bool:
        """Whether .oarlockignore includes it by its name."""
        line = _deciding(self.own, self.prefix + path, is_folder, by_name=True)
        return line is not None and line.why is None


@dataclass(frozen=True)
class _Line:
    regex: re.Pattern[str]
    why: str | None  # the reason to show for what it excludes; None for a line that includes
    only_folders: bool = False
    is_name: bool = True  # without a wildcard

    def matches(self, path: str, is_folder: bool) -> bool:
        if self.only_folders and not is_folder:
            return False
        matched = self.regex.search(path)
        # pathspec marks with this group that a folder above the path matched. git tests each folder on the
        # way by itself, and so do we: only then can `!build` be followed by `*.o`.
        return matched is not None and matched.groupdict().get("ps_d") is None


@dataclass(frozen=True)
class _IgnoreFile:
    start: int  # where a path relative to this file's folder begins
    lines: list[_Line] = field(default_factory=list)
    # The folders on the way to what a `!` line includes: `!data/eu/small.csv` has data and data/eu.
    ways: list[_Line] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, start: int) -> _IgnoreFile:
        text = os.fsdecode(file.read_bytes().removeprefix(b"\xef\xbb\xbf"))
        read = cls(start)
        for number, line in enumerate(text.split("\n"), 1):
            trimmed = _trimmed(line.removesuffix("\r"))
            read._take(trimmed, f"line {number} of {printable(str(file))} ({printable(trimmed)}) excludes it")
        return read

    def _take(self, text: str, why: str) -> None:
        only_folders = text.endswith("/")
        text = text.removesuffix("/")
        line = _compiled(text, only_folders, why)
        if line is None:
            return
        self.lines.insert(0, line)  # the last line that matches decides
        if line.why is not None:
            return
        parts = text[1:].lstrip("/").split("/")
        for end in range(1, len(parts)):
            # `!**/small.csv` could be anywhere: no ignored folder is searched for it.
            way = _compiled("/" + "/".join(parts[:end])) if set(parts[:end]) != {"**"} else None
            if way:
                self.ways.append(way)


def _trimmed(line: str) -> str:
    """The line without trailing spaces, except one that a backslash protects."""
    text = line.rstrip(" ")
    is_protected = (len(text) - len(text.rstrip("\\"))) % 2 == 1
    return text + " " if is_protected and text != line else text


def _compiled(text: str, only_folders: bool = False, why: str = "") -> _Line | None:
    try:
        with warnings.catch_warnings():  # a strange `[[` is not for the launcher to report
            warnings.simplefilter("ignore")
            patterns = list(GitIgnoreSpec.from_lines([text]).patterns)
    except (ValueError, re.error):
        return None  # to git a line that it cannot read matches nothing
    if not patterns or patterns[0].include is None or patterns[0].regex is None:
        return None  # empty, or a comment
    is_name = not set(text) & set("*?[")
    return _Line(patterns[0].regex, why if patterns[0].include else None, only_folders, is_name)


def _deciding(
    files: Iterable[_IgnoreFile], path: str, is_folder: bool, by_name: bool = False
) -> _Line | None:
    """The line that decides about a path; with `by_name`, a line with wildcards includes nothing."""
    for file in files:
        for line in file.lines:
            counts = line.is_name or line.why is not None or not by_name
            if counts and line.matches(path[file.start :], is_folder):
                return line
    return None


def _is_on_the_way(files: Iterable[_IgnoreFile], path: str, by_name: bool) -> bool:
    ways = ((way, file) for file in files for way in file.ways if way.is_name or not by_name)
    return any(way.matches(path[file.start :], True) for way, file in ways)
