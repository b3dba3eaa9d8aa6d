"""`make install` installs what is pinned, by hashes; pyproject.toml admits what the tests have tried."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
SERVE = [Requirement(text) for text in PROJECT["project"]["optional-dependencies"]["serve"]]
BUILD = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
PROVIDED_BY = {"yaml": "pyyaml"}
OPTIONAL = {
    *("tensorflow", "keras", "tf_keras", "torch", "jax", "numpy", "obstore", "ml_dtypes", "_pytest"),
    *("uvicorn", "httptools", "uvloop", "orjson", "ai_edge_litert", "onnxruntime", "onnx", "PIL"),
}


def pinned(name: str) -> dict[str, set[Version]]:
    """Versions by package; some have several, for different versions of Python."""
    found: dict[str, set[Version]] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if match := re.match(r"([\w.-]+)==([^ ]+)", line):
            found.setdefault(canonicalize_name(match[1]), set()).add(Version(match[2]))
    return found


@pytest.mark.parametrize("requirement", [*DEPENDENCIES, *SERVE, *BUILD], ids=str)
def test_the_lowest_version_that_is_admitted_is_the_one_that_is_tested(requirement: Requirement) -> None:
    [lowest] = [Version(bound.version) for bound in requirement.specifier if bound.operator == ">="]
    assert pinned("lowest.txt")[canonicalize_name(requirement.name)] == {lowest}


@pytest.mark.parametrize("name", ["all.txt", "demo.txt"])
def test_what_is_installed_is_what_is_admitted(name: str) -> None:
    versions = pinned(name)
    for requirement in [*DEPENDENCIES, *BUILD]:
        found = versions[canonicalize_name(requirement.name)]
        assert all(version in requirement.specifier for version in found), requirement


@pytest.mark.parametrize("name", ["all.txt", "demo.txt", "lowest.txt"])
def test_every_package_has_its_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    packages = re.split(r"\n(?=[\w.-]+==)", text)[1:]
    assert len(packages) > 20
    assert all("--hash=sha256:" in package for package in packages)
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE), "no option of pip but hashes"


def test_whatever_is_imported_is_declared() -> None:
    declared = {canonicalize_name(requirement.name) for requirement in DEPENDENCIES}
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    others = imported - set(sys.stdlib_module_names) - OPTIONAL - {"oarlock"}
    assert {PROVIDED_BY.get(name, name) for name in others} <= declared
