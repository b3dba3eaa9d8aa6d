"""The documentation as data: its pages, their blocks, and the shell commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "examples/*/README.md")
    for path in sorted(ROOT.glob(pattern))
]
_BLOCK = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Command(NamedTuple):
    line: str
    remark: str  # the comment after it

    def __str__(self) -> str:
        return self.line


def text(page: str) -> str:
    return (ROOT / page).read_text()


def prose(page: str) -> str:
    """The page without its blocks."""
    return _BLOCK.sub("", text(page))


def quoted(page: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def blocks(page: str, language: str) -> list[str]:
    return [block for found, block in _BLOCK.findall(text(page)) if found == language]


def commands(page: str) -> Iterator[Command]:
    """Every command of ```sh, and of ```console those after a `$`."""
    for language, block in _BLOCK.findall(text(page)):
        if language == "sh":
            yield from _commands(block.splitlines())
        elif language == "console":
            yield from _commands(line[2:] for line in block.splitlines() if line.startswith("$ "))


def _commands(lines: Iterator[str] | list[str]) -> Iterator[Command]:
    open_lines: list[str] = []
    for line in lines:
        open_lines.append(line)
        if not _is_open("\n".join(open_lines)):
            said, _, remark = "\n".join(open_lines).partition("  #")
            open_lines = []
            if said.strip():
                yield Command(said.strip(), remark.strip())
    assert not open_lines, f"a quotation mark is never closed: {open_lines}"


def _is_open(command: str) -> bool:
    """Whether a quotation mark is still to be closed."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False
