"""The source as a graph: modules, their imports and sizes. `python -m tests.support.layout` prints it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "oarlock"
LONGEST_MODULE = 300  # lines
LONGEST_FUNCTION = 50  # lines, declarations of a command's options apart
WIDEST_FOLDER = 14  # modules, `__init__` apart


@dataclass(frozen=True)
class Module:
    name: str  # oarlock.agent.host.host
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """Its folder. A module beside `oarlock/__init__.py` stands for itself."""
        if self.path.name == "__init__.py":
            return self.name
        folder = self.name.rpartition(".")[0]
        return self.name if folder == "oarlock" else folder

    @property
    def folder(self) -> str:
        """The package that it is in, or is."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def imports(self, *, for_types: bool = False) -> set[str]:
        """Full names, `a.b` for `from a import b`; lazy imports too, those for types only if asked."""
        skipped = set() if for_types else {id(node) for node in _for_types(self.tree)}
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: imports are absolute"
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        return found


@lru_cache(maxsize=1)
def modules() -> Mapping[str, Module]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["oarlock", *path.relative_to(SOURCE).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text()))
    return found


def imported(module: Module, *, for_types: bool = False) -> set[str]:
    """The modules of ours that it imports."""
    ours = modules()
    found = set()
    for name in module.imports(for_types=for_types):
        known = name if name in ours else name.rpartition(".")[0]
        if known in ours and known != module.name:
            found.add(known)
    return found


def package_graph() -> dict[str, set[str]]:
    """Which package imports which: lazy imports and those for types count. The public `oarlock` re-exports
    everything by name and imports nothing; it is left out, and so are entry points, which nobody imports."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        if module.name == "oarlock" or module.name.endswith(".__main__"):
            continue
        for name in imported(module, for_types=True) - {"oarlock"}:
            if modules()[name].package != module.package:
                graph[module.package].add(modules()[name].package)
    return graph


def import_sentence(package: str) -> str:
    """What the `__init__` of a package says about its imports, in the one way in which all of them do.

    Other folders of `oarlock` are named as a whole. Inside of its own, a package names the folders that it
    imports, and the modules beside the folders that it is in.
    """
    room = package.split(".")[1]
    others: set[str] = set()
    ours: set[str] = set()
    for module in modules().values():
        if module.folder != package:
            continue
        for name in imported(module, for_types=True) - {"oarlock"}:
            folder = modules()[name].folder
            if name.split(".")[1] != room:
                others.add(name.split(".")[1])
            elif folder != package:
                is_beside = f"{package}.".startswith(f"{folder}.")
                ours.add((name if is_beside else folder).rpartition(".")[2])
    said = [_and(others)] if others else []
    said += [f"of `{room}`: {_and(ours)}"] if ours else []
    return f"Imports {'; '.join(said) or 'nothing else of Oarlock'}."


def _and(names: set[str]) -> str:
    *most, last = (f"`{name}`" for name in sorted(names))
    return f"{', '.join(most)} and {last}" if most else last


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other."""
    reach = {node: _reachable(graph, node) for node in graph}
    groups = {
        tuple(sorted(other for other in reach[node] if node in reach.get(other, set())))
        for node in graph
        if node in reach[node]
    }
    return [list(group) for group in sorted(groups)]


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """Each function and its lines, the decorators apart."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def widths() -> dict[str, int]:
    """How many modules each folder holds."""
    counts: dict[str, int] = defaultdict(int)
    for path in SOURCE.rglob("*.py"):
        if path.name != "__init__.py":
            counts[str(path.parent.relative_to(SOURCE))] += 1
    return dict(counts)


def _for_types(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for inside in node.body:
                yield from ast.walk(inside)


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = list(graph.get(start, ()))
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += graph.get(node, ())
    return found


def main() -> None:
    longest = sorted(modules().values(), key=lambda module: -module.lines)[:8]
    long = sorted(
        (
            (lines, f"{module.name}.{name}")
            for module in modules().values()
            for name, lines in functions(module)
        ),
        reverse=True,
    )[:8]
    print(f"{len(modules())} modules, {sum(module.lines for module in modules().values())} lines")
    print("import cycles between packages:", cycles(package_graph()) or "none")
    print("longest modules:", *(f"  {module.lines:>4}  {module.name}" for module in longest), sep="\n")
    print("longest functions:", *(f"  {lines:>4}  {name}" for lines, name in long), sep="\n")
    widest = sorted(widths().items(), key=lambda pair: -pair[1])[:6]
    print("widest folders:", *(f"  {count:>4}  {name}" for name, count in widest), sep="\n")


if __name__ == "__main__":
    main()
