"""A program's own code around a model: a predict.py, whose `load(folder)` gives an object with `predict`.

Modules beside it are its own: two versions of a model that are loaded in one process do not share them.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Call = Callable[[Mapping[str, Any]], dict[str, Any]]
_MODULE = "oarlock_predict"


class BadPredict(ValueError):
    """The file cannot be used; says why."""


def check(path: Path) -> None:
    """Raises BadPredict unless the file is Python and has a function `load`. Nothing of it is run."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as problem:
        raise BadPredict(f"{path} cannot be read: {problem.strerror}") from None
    except (SyntaxError, ValueError) as problem:
        where = f", line {problem.lineno}" if isinstance(problem, SyntaxError) else ""
        raise BadPredict(f"{path}{where}: {getattr(problem, 'msg', problem)}") from None
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {
        name.asname or name.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    if "load" not in names:
        raise BadPredict(f"{path} has no function load(folder)")


def load(path: Path, folder: Path, model: Call | None = None) -> Any:
    """Run the file and return what its `load` gives.

    model: what is in the folder, as a function from arrays to arrays; for a `load` that takes two arguments.
    Raises BadPredict, and whatever the file raises.
    """
    check(path)
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise BadPredict(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    sys.modules[_MODULE] = module  # pickle and dataclasses look for it there
    try:
        spec.loader.exec_module(module)
        given = (folder,) if model is None else (folder, model)
        if model is not None and len(inspect.signature(module.load).parameters) < len(given):
            raise BadPredict(f"{path}: load(folder) has to take the model, too: load(folder, model)")
        return module.load(*given)
    finally:
        sys.path.remove(str(path.parent))
        _forget(set(sys.modules) - before, path.parent)


def _forget(names: set[str], folder: Path) -> None:
    """Its modules live on in what they gave; the next version imports its own."""
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if name == _MODULE or (isinstance(file, str) and Path(file).parent == folder):
            del sys.modules[name]
