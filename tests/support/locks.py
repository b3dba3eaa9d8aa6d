"""Locks between test processes: of one test run, or of several on this machine."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_WAIT = 500.0  # seconds; less than a test may take


@contextmanager
def held(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        deadline = time.monotonic() + _WAIT
        while not _taken(file.fileno(), fcntl.LOCK_EX):
            _check(deadline, path)
        yield


@contextmanager
def of_this_run(path: Path) -> Iterator[None]:
    """Shared by the processes of one test run (pytest-xdist has several), and by nobody else."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with path.open("a+") as file:
        deadline = time.monotonic() + _WAIT
        while True:
            if _taken(file.fileno(), fcntl.LOCK_EX):
                file.truncate(0)
                file.write(run)
                file.flush()
                fcntl.flock(file, fcntl.LOCK_SH)
                break
            if path.read_text() == run and _taken(file.fileno(), fcntl.LOCK_SH):
                break
            _check(deadline, path)
        yield


def _taken(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check(deadline: float, path: Path) -> None:
    if time.monotonic() > deadline:
        pytest.fail(f"somebody else has held {path} for {_WAIT:g} s: another test run, or a test that hangs")
    time.sleep(0.1)
