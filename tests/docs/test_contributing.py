"""CONTRIBUTING.md's walks and table name what there is, and a walk is short enough to be walked."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support import pages

PAGE = "CONTRIBUTING.md"
SOURCE = pages.ROOT / "src" / "oarlock"
LONGEST = 12  # hops


def walks() -> dict[str, list[str]]:
    section = pages.text(PAGE).partition("\n## Four walks\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### ", section, flags=re.MULTILINE)[1:]
    return {
        title: re.findall(r"^\d+\. .*$", text, re.MULTILINE)
        for title, _, text in (part.partition("\n") for part in parts)
    }


@pytest.mark.parametrize("title", walks())
def test_every_hop_of_a_walk_exists(title: str) -> None:
    hops = walks()[title]
    assert 8 <= len(hops) <= LONGEST
    for number, hop in enumerate(hops, 1):
        found = re.match(rf"{number}\. `([\w/]+\.py)` `(\w+)`: \w", hop)
        assert found, hop
        tree = ast.parse((SOURCE / found[1]).read_text())
        assert found[2] in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, hop


def test_there_are_four_walks() -> None:
    assert len(walks()) == 4


def test_the_files_that_it_names_exist() -> None:
    names = [name for name in pages.quoted(PAGE) if re.fullmatch(r"[\w/]+(\.py|/)", name)]
    assert len(names) > 40
    for name in names:
        is_there = (pages.ROOT / name).exists() or (SOURCE / name).exists()
        assert is_there or list(SOURCE.rglob(name)) or list((pages.ROOT / "tests").rglob(name)), name
