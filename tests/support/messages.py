"""The texts in the source that a user may see: the help of verbs included, other docstrings left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.layout import modules


def texts() -> Iterator[tuple[str, str]]:
    """Module and text, `<...>` where something is filled in."""
    for module in modules().values():
        skipped = _docstrings(module.tree)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in node.values}  # walked after it
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "<...>" for part in node.values
                ]
                yield module.name, "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                yield module.name, node.value


def _docstrings(tree: ast.Module) -> set[int]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) is not None and not _is_verb(node)
        if isinstance(node.body[0], ast.Expr)
    }


def _is_verb(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(decorator).startswith("click.command") for decorator in node.decorator_list
    )
