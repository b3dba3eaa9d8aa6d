"""What a program imports, seen without running it.

Only the syntax is read: the program, and the modules of its own folder that it imports, however deep. A file
with a syntax error imports nothing here; running it will show the error better than we could.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Enough for any project's own code, and a bound on how long looking can take.
MOST_FILES = 200
LARGEST_FILE = 1024 * 1024


@dataclass(frozen=True)
class Imports:
    modules: tuple[str, ...] = ()  # dotted names from outside the folder, in the order they are met
    names: frozenset[str] = frozenset()  # what is used of them, spelled out: `tensorflow.distribute`
    keras_backend: str | None = None  # what the program sets KERAS_BACKEND to


def scan(folder: Path, program: str | None = None, module: str | None = None) -> Imports:
    """The imports of a program (a path in the folder) or of a module in it; nothing if there is neither."""
    first = folder / program if program else _find_module(folder, module or "")
    if first is None:
        return Imports()
    roots = [first.parent, folder] if program else [folder]
    waiting, seen = [first], {first}
    found = Imports()
    while waiting and len(seen) <= MOST_FILES:
        file = waiting.pop(0)
        here = _scan_file(file)
        local = {name: files for name in here.modules if (files := _local(name, file, roots))}
        for path in (path for files in local.values() for path in files):
            if path not in seen:
                seen.add(path)
                waiting.append(path)
        found = _join(found, here, [name for name in here.modules if name not in local])
    return found


def _join(found: Imports, here: Imports, outside: list[str]) -> Imports:
    outside = [name for name in outside if not name.startswith(".")]
    return Imports(
        tuple(dict.fromkeys((*found.modules, *outside))),
        found.names | here.names,
        found.keras_backend or here.keras_backend,
    )


def _scan_file(file: Path) -> Imports:
    try:
        if file.stat().st_size > LARGEST_FILE:
            return Imports()
        with warnings.catch_warnings():  # an invalid escape in the program is not for the launcher to report
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return Imports()
    modules: list[str] = []
    meaning: dict[str, str] = {}  # `tf` -> `tensorflow`
    names: set[str] = set()
    # Breadth first, so that what stands at the top of a file comes before what a function imports.
    nodes = list(ast.walk(tree))
    for node in nodes:
        for module, name, alias in _imported(node):
            modules.append(module)
            names.add(f"{module}.{name}" if name else module)
            if alias:
                meaning[alias] = f"{module}.{name}" if name else module
    names |= {spelled for node in nodes if (spelled := _spelled(node, meaning))}
    backend = next((value for node in nodes if (value := _sets_keras_backend(node))), None)
    return Imports(tuple(dict.fromkeys(modules)), frozenset(names), backend)


def _imported(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """(module, name taken from it, what it is called here) for each import in a statement."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, "", alias.asname or ""
            if not alias.asname:
                yield alias.name, "", ""
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield module, alias.name, alias.asname or alias.name


def _spelled(node: ast.AST, meaning: dict[str, str]) -> str | None:
    """`tf.distribute.Strategy` as `tensorflow.distribute.Strategy`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not parts or not isinstance(node, ast.Name):
        return None
    return ".".join([meaning.get(node.id, node.id), *reversed(parts)])


def _sets_keras_backend(node: ast.AST) -> str | None:
    """The value in `os.environ["KERAS_BACKEND"] = "jax"`, which is how Keras' own documentation has it."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return None
    for target in node.targets:
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            if target.slice.value == "KERAS_BACKEND":
                return str(node.value.value)
    return None


def _local(module: str, file: Path, roots: list[Path]) -> list[Path]:
    """The files of this folder that importing a module runs: its packages' and its own."""
    stripped = module.lstrip(".")
    if module.startswith("."):
        above = len(module) - len(stripped) - 1
        roots = [file.parent if above == 0 else file.parents[above]] if above < len(file.parents) else []
    for root in roots:
        files = [found for found in _chain(root, stripped.split(".") if stripped else []) if found]
        if files:
            return files
    return []


def _chain(root: Path, parts: list[str]) -> Iterator[Path | None]:
    place = root
    if not parts:
        yield _module_file(place)
    for part in parts:
        place /= part
        yield _module_file(place)


def _module_file(place: Path) -> Path | None:
    for candidate in (place.with_name(place.name + ".py"), place / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _find_module(folder: Path, module: str) -> Path | None:
    place = folder.joinpath(*module.split("."))
    main = place / "__main__.py"
    return main if main.is_file() else _module_file(place) if module else None
