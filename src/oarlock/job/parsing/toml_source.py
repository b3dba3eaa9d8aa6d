"""TOML to plain data with line numbers: `[tool.oarlock]` in pyproject.toml or in a program, or a job file.

The standard library's reader keeps no lines, so a scan of the text finds those of table headers and of
keys at the start of a line. What is inside an inline table gets the line of the nearest key around it.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from oarlock.errors import JobError
from oarlock.job.parsing.fields import Path, Section, keeps_text
from oarlock.job.parsing.source import JobSource

_READER = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # imported only if there is TOML


def read_toml(
    text: str, shown: str, section: type[Section], table: Path = (), first_line: int = 1
) -> JobSource | None:
    """Read a section from a table of a TOML text; None if there is no such table."""
    data = _loads(text, shown, first_line)
    for name in table:
        data = data.get(name) if isinstance(data, dict) else None
        if data is None:
            return None
    if not isinstance(data, dict):
        raise JobError(f"{shown}: [{'.'.join(table)}] is not a table")
    lines = {
        path[len(table) :]: number + first_line
        for path, number in _lines(text).items()
        if path[: len(table)] == table
    }
    source = JobSource(shown, lines=lines)
    source.data.update(_plain(data, (), source, section))
    return source


def read_script(
    text: str, shown: str, section: type[Section], table: Path = ("tool", "oarlock")
) -> JobSource | None:
    """Read a section from a program's block of metadata (PEP 723); None if there is none."""
    blocks = [block for block in re.finditer(_BLOCK, text) if block["type"] == "script"]
    if not blocks:
        return None
    first_line = text.count("\n", 0, blocks[0].start()) + 1
    if len(blocks) > 1:
        second = text.count("\n", 0, blocks[1].start()) + 1
        raise JobError(f"{shown}:{second}: a second script block; the first is on line {first_line}")
    content = "".join(
        line[2:] if line.startswith("# ") else line[1:] for line in blocks[0]["content"].splitlines(True)
    )
    return read_toml(content, shown, section, table, first_line + 1)


# From PEP 723 itself, so that every tool sees the same block.
_BLOCK = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"


class _Written(float):
    """A float that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> _Written:
        number = super().__new__(cls, text.replace("_", ""))
        number.text = text
        return number


def _loads(text: str, shown: str, first_line: int) -> Any:
    try:
        return importlib.import_module(_READER).loads(text, parse_float=_Written)
    except RecursionError:
        raise JobError(f"{shown}: nested too deeply") from None
    except ValueError as problem:  # TOMLDecodeError, and a number that Python finds too long
        message, found = str(problem), re.search(r" \(at line (\d+), column \d+\)", str(problem))
        line = int(found[1]) - 1 if found else max(text.count("\n", 0, len(text.rstrip())), 0)
        plain = re.sub(r" \(at [^()]*\)\Z", "", message)
        raise JobError(
            f"{shown}:{line + first_line}: not valid TOML: {plain[:1].lower()}{plain[1:]}"
        ) from None


def _plain(value: Any, path: Path, source: JobSource, section: type[Section]) -> Any:
    """The value as YAML would have it: floats without their text, dates and times as text."""
    if isinstance(value, dict):
        return {name: _plain(item, (*path, name), source, section) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, (*path, str(number)), source, section) for number, item in enumerate(value)]
    if isinstance(value, _Written):
        return value.text if keeps_text(section, path) else float(value)
    if isinstance(value, int) and abs(value) >= 1 << 64:
        raise JobError(f"{source.where(path)}: {'.'.join(path)}: a number too large")
    return value if isinstance(value, (str, int, float)) else str(value)


def _lines(text: str) -> dict[Path, int]:
    """Field paths to line numbers, counted from 0; the first place wins."""
    found: dict[Path, int] = {}
    table: Path = ()
    closing = ""  # the quotes that end the multi-line text around this line
    for number, line in enumerate(text.splitlines()):
        if closing:
            closing = "" if closing in line else closing
            continue
        header = re.match(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?$", line)
        key = re.match(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=""", line)
        if header:
            table = _key(header[1])
            _note(found, table, number)
        elif key:
            _note(found, (*table, *_key(key[1])), number)
        quotes = re.findall(r'"""|\'\'\'', line)
        closing = quotes[0] if len(quotes) == 1 else ""
    return found


def _note(found: dict[Path, int], path: Path, number: int) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], number)


def _key(written: str) -> Path:
    """The parts of `tool."oarlock".limits`; the standard library knows TOML's quoting."""
    try:
        inner: Any = importlib.import_module(_READER).loads(f"{written} = 0")
    except ValueError:
        return ()
    path: Path = ()
    while isinstance(inner, dict):
        (name, inner), *_ = inner.items()
        path = (*path, name)
    return path
