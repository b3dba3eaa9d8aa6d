"""A program's own code around a model: a predict.py whose `load(folder)` returns an object with `predict`.

Modules beside it belong to it: two versions of a model loaded in one process do not share them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

Call = Callable[[Mapping[str, Any]], dict[str, Any]]
_MODULE = "oarlock_predict"


class BadPredict(ValueError):
    """The file cannot be used; says why."""


def check(path: Path) -> None:
    """Raise BadPredict unless the file is Python and defines a function `load`. Runs none of it."""
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


def load(path: Path, folder: Path, model: Call | None = None, instead_of: Path | None = None) -> Any:
    """Run the file and return what its `load` returns.

    model: what is in the folder, as a function from arrays to arrays, for a `load` with two parameters.
    instead_of: the folder that the file was copied from: nothing is imported from there.
    Raises BadPredict, and any error of the file itself.
    """
    check(path)
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise BadPredict(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    own = {_MODULE, *(_modules_in(folder) if path.parent == folder else ())}
    search, others, writes_none = list(sys.path), _hide(own, instead_of), sys.dont_write_bytecode
    sys.path[:] = [str(path.parent), *(place for place in search if not _is(place, instead_of))]
    sys.modules[_MODULE] = module  # pickle and dataclasses look for it there
    sys.dont_write_bytecode = True  # a server treats a folder that changes as a new version
    importlib.invalidate_caches()
    try:
        spec.loader.exec_module(module)
        given = (folder,) if model is None else (folder, model)
        if model is not None and len(inspect.signature(module.load).parameters) < len(given):
            raise BadPredict(f"{path}: load(folder) has to take the model, too: load(folder, model)")
        return module.load(*given)
    finally:
        sys.path[:], sys.dont_write_bytecode = search, writes_none
        _hide(own, None)  # what `load` returned keeps them; the next version imports its own
        sys.modules.update(others)


def _modules_in(folder: Path) -> set[str]:
    packages = {one.parent.name for one in folder.glob("*/__init__.py")}
    return packages | {one.stem for one in folder.glob("*.py")}


def _hide(names: set[str], other: Path | None) -> dict[str, ModuleType]:
    """Remove these modules, and those from a folder, from `sys.modules`, and return them."""
    found = {
        name: module
        for name, module in list(sys.modules.items())
        if name != "__main__" and (name.partition(".")[0] in names or _is(_place(module), other))
    }
    for name in found:
        del sys.modules[name]
    return found


def _place(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return str(Path(file).parent) if isinstance(file, str) else None


def _is(place: str | None, folder: Path | None) -> bool:
    return place is not None and folder is not None and Path(place).resolve() == folder.resolve()
