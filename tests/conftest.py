"""What all tests share: a home of their own, the real console script, and no run left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.local import local_engine
from oarlock.records import runs
from tests.support.commands import SCRIPT, Command
from tests.support.cuda_library import cuda_library  # noqa: F401
from tests.support.fake_gpus import machine_with_gpus  # noqa: F401
from tests.support.finished_runs import finished, records, terminal  # noqa: F401
from tests.support.gang_fixture import start  # noqa: F401
from tests.support.nvml_library import nvml_library  # noqa: F401
from tests.support.soaking import IS_SOAK
from tests.support.task_lines import agent_line, no_launcher  # noqa: F401

# Processes of pytest-xdist, and what a script or nohup starts, ignore Ctrl-C or a hangup, and all that they
# start would inherit that: clients that tests interrupt, and a cluster with all that ever runs in its pods.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked `soak` to `make soak`."""
    if not IS_SOAK:
        long = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh OARLOCK_HOME. Whatever still runs in it when the test is over is killed."""
    folder = tmp_path / "home"
    monkeypatch.setenv("OARLOCK_HOME", str(folder))
    yield folder
    for run in runs.all_runs():
        if run.engine == "local":  # the cluster's own fixtures see to the others
            local_engine.stop(run, now=True)


@pytest.fixture
def oarlock(home: Path, tmp_path: Path) -> Command:
    """The console script, run in `tmp_path`."""

    def call(*words: str, timeout: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
        settings: dict[str, Any] = {"cwd": tmp_path, "env": os.environ, **options}
        return subprocess.run(
            [str(SCRIPT), *words], capture_output=True, text=True, timeout=timeout, check=False, **settings
        )

    return call
