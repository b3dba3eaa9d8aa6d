"""YAML to plain data with line numbers.

PyYAML scans and composes; the values are made here, for three reasons: PyYAML's own values have no
lines, lose the first of two equal keys, and follow YAML 1.1, where `no` is false and `1:30` is 90.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from oarlock.errors import JobError
from oarlock.job.parsing.fields import Path, Section, keeps_text
from oarlock.job.parsing.source import JobSource
from oarlock.wording import show

# Far above any job. What an alias repeats counts again, so that ten lines cannot become a billion values.
MOST_VALUES = 10_000


def read_yaml(text: str, shown: str, section: type[Section]) -> JobSource:
    """Read the file of a section; raises JobError with the line."""
    node = _compose(text, shown)
    if node is None:
        raise JobError(f"{shown}: empty; a job file has at least a program")
    source = JobSource(shown)
    data = _Construction(source, section).value(node, (), ())
    if not isinstance(data, dict):
        line = node.start_mark.line + 1
        raise JobError(f"{shown}:{line}: expected fields such as program: train.py, found {show(data)}")
    source.data.update(data)
    return source


def read_value(text: str, section: type[Section], path: Path) -> Any:
    """Read the value of one field, as on the right of `--set a.b=`; raises ValueError."""
    try:
        node = _compose(text, "")
        return None if node is None else _Construction(JobSource(""), section).value(node, path, ())
    except JobError as problem:
        raise ValueError(str(problem).partition(": ")[2]) from None


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)


_TAG = "tag:yaml.org,2002:"
for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]{1,100}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})\Z"), _first)


def _compose(text: str, shown: str) -> Node | None:
    try:
        return _Loader(text).get_single_node()
    except ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise JobError(
            f"{shown}:{line}: a character that YAML does not allow (#x{problem.character:x})"
        ) from None
    except yaml.MarkedYAMLError as problem:
        # PyYAML notices an open quote or bracket at the end of the file; the mistake is where it opens.
        left_open = re.search("end of stream|<stream end>|could not find", problem.problem or "")
        mark = problem.context_mark if left_open and problem.context_mark else problem.problem_mark
        line = mark.line + 1 if mark else 1
        raise JobError(f"{shown}:{line}: {_in_plain_words(problem.problem or '')}") from None
    except RecursionError:
        raise JobError(f"{shown}: nested too deeply") from None
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF" that no character has
        raise JobError(f"{shown}: an escape in quotes is not a valid character") from None


class _Construction:
    def __init__(self, source: JobSource, section: type[Section]) -> None:
        self.source = source
        self.section = section
        self.count = 0

    def value(self, node: Node, path: Path, around: tuple[Node, ...]) -> Any:
        self.count += 1
        if node in around:
            raise self.problem(node, path, "an alias that contains itself")
        if self.count > MOST_VALUES:
            raise self.problem(node, path, f"more than {MOST_VALUES} values; a job is small")
        if len(around) > 50:
            raise self.problem(node, path, "nested too deeply")
        if isinstance(node, ScalarNode):
            return self.scalar(node, path)
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self.mapping(node, path, (*around, node))
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self.item(item, (*path, str(n)), (*around, node)) for n, item in enumerate(node.value)]
        raise self.problem(node, path, f"the tag {node.tag.replace(_TAG, '!!')} means nothing here")

    def item(self, node: Node, path: Path, around: tuple[Node, ...]) -> Any:
        self.source.lines[path] = node.start_mark.line + 1
        return self.value(node, path, around)

    def mapping(self, node: MappingNode, path: Path, around: tuple[Node, ...]) -> dict[str, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise self.problem(key, path, "expected a name before the ':'")
            if key.value in lines:
                raise self.problem(key, (*path, key.value), f"given twice, first on line {lines[key.value]}")
            lines[key.value] = key.start_mark.line + 1
        data = self.merged(node, path, around)
        for key, value in node.value:
            if _merges(key):
                continue
            inner = (*path, key.value)
            self.source.lines[inner] = lines[key.value]
            data[key.value] = self.value(value, inner, around)
        return data

    def merged(self, node: MappingNode, path: Path, around: tuple[Node, ...]) -> dict[str, Any]:
        """The fields that `<<: *defaults` gives where the mapping does not; in a list the first wins."""
        data: dict[str, Any] = {}
        for other in (value for key, value in node.value if _merges(key)):
            for one in reversed(other.value) if isinstance(other, SequenceNode) else (other,):
                if not isinstance(one, MappingNode):
                    raise self.problem(one, path, "<< takes a mapping, such as *defaults")
                data.update(self.value(one, path, around))
        return data

    def scalar(self, node: ScalarNode, path: Path) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind not in _SCALARS:
            raise self.problem(node, path, f"the tag {node.tag.replace(_TAG, '!!')} means nothing here")
        try:
            value = _SCALARS[kind](text)
        except (ValueError, KeyError):
            raise self.problem(node, path, f"{show(text)} is not a valid {kind}") from None
        return text if value is not None and keeps_text(self.section, path) else value

    def problem(self, node: Node, path: Path, text: str) -> JobError:
        field = f"{'.'.join(path)}: " if path else ""
        return JobError(f"{self.source.shown}:{node.start_mark.line + 1}: {field}{text}")


def _merges(key: Node) -> bool:
    return isinstance(key, ScalarNode) and key.value == "<<" and key.style is None


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda text: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": lambda text: int(text, 0) if text[:2] in ("0o", "0x") else int(text),
    "float": lambda text: float(re.sub(r"\.(?=[a-zA-Z])", "", text)),
}

# PyYAML's wording of common mistakes, and ours.
_WORDS = (
    (r"character '\\t'", "a tab; YAML is indented with spaces"),
    (
        r"mapping values are not allowed",
        "a ':' out of place; check the indentation, or put the value in quotes",
    ),
    (r"could not find expected ':'", "expected a name and ':'"),
    (r"end of stream|got '<stream end>'", "a quotation mark or a bracket is not closed"),
    (r"another document", "a second document; a job file holds one"),
    (r"undefined alias", "an alias (*) for which there is no anchor (&) above it"),
    (r"expected <block end>", "out of line with what is above it; check the indentation"),
)


def _in_plain_words(problem: str) -> str:
    ours = (words for pattern, words in _WORDS if re.search(pattern, problem))
    return next(ours, f"not valid YAML: {problem}")
