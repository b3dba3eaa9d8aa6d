"""A module beside the program is the program's, never the agent's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gangs import Gang

# All of them are used by us, in one process or another.
NAMES = (
    "select",
    "queue",
    "logging",
    "tempfile",
    "socket",
    "random",
    "struct",
    "dataclasses",
    "signal",
    "zlib",
)
PROGRAM = """
import secrets, queue, oarlock
state = oarlock.State(count=0)
for step in state.steps(3, save=1):
    state.count += 1
print("the key is", secrets.API_KEY, "and the queue", queue.MINE)
"""
# As when only a library of the program uses Oarlock: the zygote has not imported it.
BY_A_LIBRARY = PROGRAM.replace(", oarlock", "; oarlock = __import__('oarlock')")


@pytest.mark.parametrize(("program", "warm"), [(PROGRAM, True), (PROGRAM, False), (BY_A_LIBRARY, True)])
def test_modules_beside_the_program_are_only_the_programs(
    start: Callable[..., Gang], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, warm: bool
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text("raise ImportError('this is not the standard library')")
    (folder / "secrets.py").write_text("API_KEY = 'hush'")
    (folder / "queue.py").write_text("MINE = 'too'")
    monkeypatch.chdir(folder)
    gang = start(program, roles={"worker": 1}, warm=warm)
    assert gang.end().state == "succeeded", gang.told()
    assert "worker-0| the key is hush and the queue too" in gang.lines
    assert list((gang.run.path / "checkpoints").glob("step-*")), "the writer saved nothing"
