"""Locks between test processes: of one test run, or of several on this machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oarlock.system.polling import wait_for

_WAIT = 500.0  # seconds; less than a test may take


@contextmanager
def held(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        _await(lambda: _taken(file.fileno(), fcntl.LOCK_EX), path)
        yield


@contextmanager
def of_this_run(path: Path) -> Iterator[None]:
    """Shared by the processes of one test run (pytest-xdist has several), and by nobody else."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with path.open("a+") as file:

        def is_ours() -> bool:
            if _taken(file.fileno(), fcntl.LOCK_EX):
                file.truncate(0)
                file.write(run)
                file.flush()
                fcntl.flock(file, fcntl.LOCK_SH)
                return True
            return path.read_text() == run and _taken(file.fileno(), fcntl.LOCK_SH)

        _await(is_ours, path)
        yield


def _taken(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _await(is_ours: Callable[[], bool], path: Path) -> None:
    try:
        wait_for(is_ours, "lock", _WAIT, every=0.1)
    except TimeoutError:
        pytest.fail(f"somebody else has held {path} for {_WAIT:g} s: another test run, or a test that hangs")
