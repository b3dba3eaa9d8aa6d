"""What an archive saves on docstrings costs nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import oarlock
from oarlock.program.bare_source import without_docstrings

SOURCE = '''"""A module
of two lines."""

import os  # a comment


class Shape:
    """It has sides."""

    def sides(self):
        """Return how many,

        if any."""

    async def area(self): "one line"

    def text(self):
        text = """no docstring"""
        return text
'''


def test_docstrings_go_and_lines_stay_where_they_are() -> None:
    bare = without_docstrings(SOURCE.encode()).decode()
    assert "two lines" not in bare
    assert "has sides" not in bare
    assert 'async def area(self): "one line"' in bare
    assert "if any" not in bare
    assert 'text = """no docstring"""' in bare
    numbers = [line.strip() for line in SOURCE.split("\n")].index("import os  # a comment")
    assert bare.split("\n")[numbers] == "import os  # a comment"
    assert len(bare.split("\n")) == len(SOURCE.split("\n"))


@pytest.mark.parametrize("path", sorted((Path(oarlock.__file__).parent / "agent").rglob("*.py")), ids=str)
def test_the_program_stays_the_same(path: Path) -> None:
    """But for the docstrings, which Python's own option -OO leaves out as well."""

    def program(source: bytes) -> str:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and _says_nothing(body[0]):
                body[:] = body[1:]
        return ast.dump(tree, include_attributes=False)

    source = path.read_bytes()
    assert program(without_docstrings(source)) == program(source)


def _says_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
