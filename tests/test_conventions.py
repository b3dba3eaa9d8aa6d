"""How tests are written and where they are: CONTRIBUTING has the table, "Where a test goes"."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from oarlock.cli.group import VERBS
from tests.support.layout import SOURCE, modules

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
MAKEFILE = (ROOT / "Makefile").read_text()
LONGEST_SLEEP = 1  # seconds; a poll is shorter
_IMPORT = re.compile(r"\bfrom (oarlock\b[\w.]*) import ([\w, ]+)|\bimport (oarlock\b[\w.]*)")


def files() -> list[Path]:
    """All that pytest runs or imports. What tests start as a user's program is not held to this."""
    found = [*TESTS.rglob("*.py"), *(ROOT / "soak").glob("*.py")]
    return sorted(path for path in found if "programs" not in path.parts)


def table() -> dict[str, str]:
    """CONTRIBUTING's folders of tests, and what belongs there."""
    block = re.search(r"```tests\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert block
    return dict(re.findall(r"^(\S+) +(.+)$", block[1], re.MULTILINE))


def test_no_test_sleeps_for_a_fixed_time() -> None:
    """It waits for something, with a deadline: `eventually`, `Gang.until`, an event."""
    for path, node in nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep"):
            [seconds] = node.args
            is_fixed = isinstance(seconds, ast.Constant) and ast.literal_eval(seconds) >= LONGEST_SLEEP
            assert not is_fixed, f"{path}:{node.lineno}"


def test_no_run_has_left_its_files_in_the_repository() -> None:
    """`python train.py` in the folder of an example would resume from a checkpoint there."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = listed.stdout.splitlines()
    assert not [name for name in found if "/checkpoints/step-" in name or name.endswith(".safetensors")]


def test_files_of_cluster_tests_name_their_runs_differently() -> None:
    """They run side by side in one namespace."""
    named = re.compile(r'(?:"--name", |ended\.append\()"([\w-]+)"')
    users: dict[str, set[str]] = {}
    for path in (TESTS / "kubernetes").glob("*.py"):
        for run in named.findall(path.read_text()):
            users.setdefault(run, set()).add(path.name)
    assert len(users) > 20
    assert {run: files for run, files in users.items() if len(files) > 1} == {}


def test_what_leaves_a_part_to_the_soak_is_in_the_soak() -> None:
    soak = MAKEFILE.partition("\nsoak:")[2].partition("\n\n")[0]
    named = re.findall(r"\btests/\S+", soak)
    asks = re.compile(r"^from tests\.support(\.soaking import| import .*\bsoaking\b)", re.MULTILINE)
    for path in TESTS.rglob("test_*.py"):
        name = path.relative_to(ROOT).as_posix()
        if asks.search(path.read_text()):
            assert any(f"{name}/".startswith(f"{one}/") for one in named), f"`make soak` lacks {name}"


def test_folders_of_tests_are_those_of_the_source_and_those_of_the_table() -> None:
    mirrored = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")}
    for path in files():
        folder = path.parent.relative_to(ROOT).as_posix()
        inside = folder.removeprefix("tests/")
        assert folder in table() or inside in mirrored, (
            f"{path.relative_to(ROOT)}: no src/oarlock/{inside}, and CONTRIBUTING does not name {folder}"
        )


def test_each_folder_of_the_table_is_there() -> None:
    for folder, purpose in table().items():
        assert (ROOT / folder).is_dir(), folder
        assert purpose


def test_files_beside_the_folders_are_about_a_module_or_the_repository() -> None:
    about_the_repository = {"all", "architecture", "conventions", "requirements", "wheel"}
    single = {path.stem for path in SOURCE.glob("*.py")}
    for path in TESTS.glob("test_*.py"):
        assert path.stem.removeprefix("test_") in about_the_repository | single, path.name


def test_each_verb_has_its_file() -> None:
    """Some need a cluster, and have it only there."""
    for verb in VERBS:
        found = [
            folder for folder in ("cli/verbs", "kubernetes") if (TESTS / folder / f"test_{verb}.py").exists()
        ]
        assert found, f"tests/cli/verbs/test_{verb}.py"
    for path in (TESTS / "cli" / "verbs").glob("test_*.py"):
        assert path.stem.removeprefix("test_").split("_")[0] in VERBS, path.name


def test_no_test_imports_another() -> None:
    """What several need is in tests/support."""
    for path, node in nodes():
        if isinstance(node, ast.ImportFrom) and node.module:
            assert not re.search(r"(^|\.)test_", node.module), f"{path}:{node.lineno} imports {node.module}"


def test_programs_given_as_text_import_what_there_is() -> None:
    """mypy does not look there, and a module that is renamed breaks them only when they run."""
    for path, node in nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in _imports(node.value):
                assert _is_there(name), f"{path}:{node.lineno} imports {name}"


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    trees = ((path.relative_to(ROOT), ast.parse(path.read_text())) for path in files())
    return [(path, node) for path, tree in trees for node in ast.walk(tree)]


def _imports(program: str) -> Iterator[str]:
    for source, names, module in _IMPORT.findall(program):
        if module:
            yield module.rstrip(".")
        for name in re.findall(r"\w+", re.sub(r" as \w+", "", names)):
            yield f"{source}.{name}"


def _is_there(name: str) -> bool:
    """A module, or a name in one."""
    module, _, last = name.rpartition(".")
    if name in modules():
        return True
    return module in modules() and bool(re.search(rf"\b{last}\b", modules()[module].path.read_text()))
