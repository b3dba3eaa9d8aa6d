"""docs/troubleshooting.md quotes what Oarlock says, and the commands that it names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support import pages
from tests.support.layout import modules

PAGE = "docs/troubleshooting.md"
SIGNALS = re.compile(r"killed by SIG[A-Z]+")  # the name is filled in


def messages() -> list[str]:
    rows = re.findall(r"^\| `(.+?)`.*? \| .+ \| .+ \|$", pages.text(PAGE), re.MULTILINE)
    return [row for row in rows if not SIGNALS.fullmatch(row)]


@pytest.fixture(scope="module")
def said() -> str:
    """The texts in the source, `<...>` where something is filled in."""
    return "\n".join(texts())


def texts() -> Iterator[str]:
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "<...>" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_there_are_messages() -> None:
    assert len(messages()) > 25


@pytest.mark.parametrize("message", messages())
def test_every_message_is_one_that_is_said(message: str, said: str) -> None:
    for piece in re.split(r"<[^>]+>", message):
        assert piece.strip() in said, f"{piece!r} of {message}"
