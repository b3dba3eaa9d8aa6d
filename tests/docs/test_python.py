"""docs/python.md has every public name, with the signature that it has, and examples that run."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oarlock as package

TEXT = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
TRAIN = """
import sys
import oarlock
me = oarlock.current()
me.report(1, total=1, loss=0.5)
print("trained", sys.argv[1:])
"""


def signatures() -> dict[str, str]:
    """As the page has them: without spaces, quotes, trailing commas and `-> None`."""
    blocks = re.findall(r"^```py\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    written = [one for block in blocks for one in re.split(r"\n(?=\S)", block.strip())]
    return {one.partition("(")[0]: _squeezed("(" + one.partition("(")[2]) for one in written}


def found(path: str) -> Any:
    value: Any = package
    for name in path.split(".")[1:]:
        value = getattr(value, name)
    return value


def public() -> Iterator[str]:
    """All functions and classes that a user may call, and their methods."""
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.ismodule(value):
            own = getattr(value, "__all__", ["callbacks", "Callbacks"])
            yield from (f"oarlock.{name}.{inner}" for inner in own)
            for inner in ("Batches", "Shards"):
                yield from _methods(f"oarlock.{name}.{inner}", getattr(value, inner, None))
        elif inspect.isclass(value) and not issubclass(value, Exception):
            # A run is never made by its users.
            yield from [] if name == "Run" else [f"oarlock.{name}"]
            yield from _methods(f"oarlock.{name}", value)
        elif callable(value) and not inspect.isclass(value):
            yield f"oarlock.{name}"


def _methods(path: str, value: Any) -> Iterator[str]:
    for name, member in vars(value).items() if value else ():
        if inspect.isfunction(member) and not name.startswith("_"):
            yield f"{path}.{name}"


def _squeezed(signature: str) -> str:
    return re.sub(r",(?=\))", "", re.sub(r"[\s'\"]", "", signature)).removesuffix("->None")


def test_every_public_name_is_there() -> None:
    assert [name for name in package.__all__ if not re.search(rf"`(oarlock\.)?{name}`", TEXT)] == []


def test_every_signature_is_there_and_right() -> None:
    assert signatures() == {path: _squeezed(str(inspect.signature(found(path)))) for path in public()}


@pytest.mark.parametrize(
    "path", ["oarlock.Context", "oarlock.State", "oarlock.Run", "oarlock.data.Batches", "oarlock.data.Shards"]
)
def test_every_property_is_named(path: str) -> None:
    properties = [name for name, one in vars(found(path)).items() if isinstance(one, property)]
    assert properties
    assert [name for name in properties if not re.search(rf"\b{name}\b`", TEXT)] == []


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_every_example_runs(number: int, home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "example.py").write_text(SNIPPETS[number])
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{SNIPPETS[number]}\n{done.stdout}{done.stderr}"
