"""The trees of exceptions in `oarlock.errors` are those of the code."""

from __future__ import annotations

import ast
import builtins
import re

from oarlock import errors
from tests.support.layout import modules

_BRANCH = re.compile(r"^    ([│ ]*)(?:[├└]── )?(\w+)(?:  .*)?$")


def test_every_exception_is_drawn_below_its_base() -> None:
    assert _drawn(errors.__doc__ or "") == _defined()


def _defined() -> set[tuple[str, str]]:
    """Names and bases of the public exceptions in the code."""
    bases: dict[tuple[str, str], str] = {}
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name):
                bases[node.name, module.name] = node.bases[0].id
    named = {name: base for (name, _), base in bases.items()}

    def is_exception(base: str) -> bool:
        found = getattr(builtins, base, None)
        if isinstance(found, type):
            return issubclass(found, BaseException)
        return base in named and is_exception(named[base])

    return {(name, base) for (name, _), base in bases.items() if is_exception(base) and name[0] != "_"}


def _drawn(text: str) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    above: list[str] = []  # the names that a line hangs from
    for line in text.splitlines():
        matched = _BRANCH.match(line)
        if matched is None:
            above = []
            continue
        depth = len(matched[1]) // 4 + ("─" in line)
        above = [*above[:depth], matched[2]]
        if depth or not hasattr(builtins, matched[2]):
            found.add((matched[2], above[-2] if depth else "Exception"))
    return found
