"""docs/troubleshooting.md quotes what Oarlock says, and the commands that it names exist."""

from __future__ import annotations

import re

import pytest

from tests.support import pages
from tests.support.messages import texts

PAGE = "docs/troubleshooting.md"
SIGNALS = re.compile(r"killed by SIG[A-Z]+")  # the name is filled in


def messages() -> list[str]:
    rows = re.findall(r"^\| `(.+?)`.*? \| .+ \| .+ \|$", pages.text(PAGE), re.MULTILINE)
    return [row for row in rows if not SIGNALS.fullmatch(row)]


@pytest.fixture(scope="module")
def said() -> str:
    """The texts in the source, `<...>` where something is filled in."""
    return "\n".join(text for _, text in texts())


def test_there_are_messages() -> None:
    assert len(messages()) > 25


@pytest.mark.parametrize("message", messages())
def test_every_message_is_one_that_is_said(message: str, said: str) -> None:
    for piece in re.split(r"<[^>]+>", message):
        assert piece.strip() in said, f"{piece!r} of {message}"
