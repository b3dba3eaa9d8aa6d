"""What a container's limits are, as kernels with control groups of version 2 and 1 tell them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock.system import control_group

Files = dict[str, str]
V2: Files = {
    "memory.max": "5000",
    "memory.current": "3000",
    "memory.events": "oom 3\noom_kill 2",
    "pids.max": "70",
}
V1: Files = {
    "memory/memory.limit_in_bytes": "5000",
    "memory/memory.usage_in_bytes": "3000",
    "memory/memory.oom_control": "under_oom 0\noom_kill 2",
    "pids/pids.max": "70",
}
UNLIMITED: Files = {"memory.max": "max", "memory.current": "3000", "pids.max": "max"}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Files], None]:
    monkeypatch.setattr(control_group, "_ROOT", tmp_path)

    def says(files: Files) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")

    return says


@pytest.mark.parametrize("files", [V2, V1])
def test_limits(kernel: Callable[[Files], None], files: Files) -> None:
    kernel(files)
    assert control_group.memory_limit() == 5000
    assert control_group.free_memory() == 2000
    assert control_group.pids_limit() == 70
    assert control_group.kills() == 2


@pytest.mark.parametrize("files", [UNLIMITED, {}])
def test_no_limits(kernel: Callable[[Files], None], files: Files) -> None:
    kernel(files)
    assert (control_group.memory_limit(), control_group.pids_limit()) == (None, None)
    assert control_group.free_memory() > 1 << 20
    assert control_group.kills() == 0


@pytest.mark.parametrize("used", ["6000", "unknown"])
def test_more_in_use_than_allowed_or_who_knows_leaves_nothing(
    kernel: Callable[[Files], None], used: str
) -> None:
    kernel({**V2, "memory.current": used})
    assert control_group.free_memory() == 0
