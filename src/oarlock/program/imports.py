"""The imports of a program, found without running it.

Only the syntax is read: of the program, and of the modules in its own folder that it imports, at any depth. A
file with a syntax error imports nothing here; running it shows the error better than this module could.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Enough for any project's own code, and a bound on how long the scan can take.
MOST_FILES = 200
LARGEST_FILE = 1024 * 1024
# What a handler catches, or a condition tests, if the program can do without an import.
_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_ASKED = {"TYPE_CHECKING", "version_info", "platform", "find_spec", "backend"}


@dataclass(frozen=True)
class Imports:
    """What a program imports and uses."""

    # Modules from outside the folder, in order of appearance; `from a import b` is `a.b`.
    modules: tuple[str, ...] = ()
    # The names used of them, spelled out: `tf.distribute.Strategy` is `tensorflow.distribute.Strategy`.
    names: frozenset[str] = frozenset()
    keras_backend: str | None = None  # what the program sets KERAS_BACKEND to
    # The `modules` that the program needs: not in `try: ... except ImportError`, not for types only.
    needed: tuple[str, ...] = ()
    # The program, and the files of its folder that it imports.
    files: tuple[Path, ...] = ()


def scan(folder: Path, program: str | None = None, module: str | None = None) -> Imports:
    """Collect the imports of a program (a path in the folder) or of a module in it.

    A module from elsewhere is the one import: `-m accelerate.commands.launch` uses accelerate.
    """
    first = entry(folder, program, module)
    if first is None:
        return Imports((module,), frozenset((module,))) if module else Imports()
    roots = [first.parent, folder] if program else [folder]
    waiting, seen = [first], {first: Imports()}
    beside: dict[tuple[Path, str], list[Path]] = {}  # the files of this folder that an import runs
    modules: dict[str, None] = {}
    names: set[str] = set()
    backend: str | None = None
    while waiting:
        file = waiting.pop(0)
        here = seen[file] = _scan_file(file)
        names |= here.names
        backend = backend or here.keras_backend
        for name in here.modules:
            files = beside[file, name] = _local(name, file, roots)
            if not files and not name.startswith("."):
                modules[name] = None
            for path in files:
                if path not in seen and len(seen) < MOST_FILES:
                    seen[path] = Imports()
                    waiting.append(path)
    needed = _needed(first, seen, beside)
    return Imports(
        tuple(modules),
        frozenset(names),
        backend,
        tuple(name for name in modules if name in needed),
        tuple(sorted(file for file in seen if file.is_file())),
    )


def _needed(
    first: Path, seen: Mapping[Path, Imports], beside: Mapping[tuple[Path, str], list[Path]]
) -> set[str]:
    """The modules that the program needs, by itself or through files that it needs."""
    waiting, reached, names = [first], {first}, set()
    while waiting:
        file = waiting.pop()
        for name in seen[file].needed:
            names.add(name)
            new = [path for path in beside[file, name] if path in seen and path not in reached]
            reached.update(new)
            waiting += new
    return names


def entry(folder: Path, program: str | None = None, module: str | None = None) -> Path | None:
    """The file that runs first; None for a module that is not in the folder."""
    if program:
        return folder / program
    return _find_module(folder, module) if module else None


def _scan_file(file: Path) -> Imports:
    try:
        found = file.stat()
    except OSError:
        return Imports()
    return _scan_version(file, found.st_size, found.st_mtime_ns)


@cache  # a start looks twice, and parsing takes 2 ms a file
def _scan_version(file: Path, size: int, modified: int) -> Imports:
    if size > LARGEST_FILE:
        return Imports()
    try:
        with warnings.catch_warnings():  # the launcher does not report an invalid escape in the program
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return Imports()
    # Breadth first, so that imports at the top of a file come before those inside a function.
    nodes = list(ast.walk(tree))
    imported = [found for node in nodes for found in _imported(node)]
    meaning = {alias: name for name, alias in imported if alias}
    spelled = {name for node in nodes if (name := _spelled(node, meaning))}
    return Imports(
        tuple(dict.fromkeys(name for name, _ in imported)),
        frozenset(spelled.union(name for name, _ in imported)),
        next((value for node in nodes if (value := _sets_keras_backend(node))), None),
        tuple(dict.fromkeys(name for node in _unguarded(tree) for name, _ in _imported(node))),
    )


def _unguarded(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements except those inside one that expects an import to fail, or is for type checkers."""
    waiting = [tree]
    while waiting:
        node = waiting.pop(0)
        if not _is_guard(node):
            yield node
            waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


def _is_guard(node: ast.AST) -> bool:
    if isinstance(node, ast.Try):
        return any(handler.type is None or _words(handler.type) & _CAUGHT for handler in node.handlers)
    return isinstance(node, ast.If) and bool(_words(node.test) & _ASKED)


def _words(node: ast.AST) -> set[str]:
    """The last parts of all names in an expression."""
    inside = list(ast.walk(node))
    return {one.id for one in inside if isinstance(one, ast.Name)} | {
        one.attr for one in inside if isinstance(one, ast.Attribute)
    }


def _imported(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    """The full name of each import in a statement and its name in this file: `torch.distributed`, `dist`."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, alias.asname
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (f"{node.module}." if node.module else "")
        for alias in node.names:
            yield module + alias.name, alias.asname or alias.name


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
    """The value in `os.environ["KERAS_BACKEND"] = "jax"`, as Keras' own documentation writes it."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
        for target in node.targets:
            key = target.slice if isinstance(target, ast.Subscript) else None
            if isinstance(key, ast.Constant) and key.value == "KERAS_BACKEND":
                return str(node.value.value)
    return None


def _local(name: str, file: Path, roots: list[Path]) -> list[Path]:
    """The files of this folder that an import runs: those of its parent packages, and its own."""
    parts = name.lstrip(".").split(".")
    level = len(name) - len(name.lstrip("."))
    if level:
        roots = [file.parents[level - 1]] if level <= len(file.parents) else []
    for root in roots:
        places = [root.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
        files = [found for place in places if (found := _module_file(place))]
        if files:
            return files
    return []


def _module_file(place: Path) -> Path | None:
    candidates = (place.with_name(place.name + ".py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _find_module(folder: Path, module: str) -> Path | None:
    place = folder.joinpath(*module.split("."))
    main = place / "__main__.py"
    return main if main.is_file() else _module_file(place)
