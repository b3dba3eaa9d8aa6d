"""Fetch the snapshots to score from object storage, in the downloader's process, which alone uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.score.score_error import ScoreError
from oarlock.agent.snapshots.snapshot_messages import LINES, ORDERS, Download, Failed, MissingPackage, Note
from oarlock.system import processes

_PATIENCE = 60.0  # seconds without an answer: a user is waiting at the keyboard


def fetch(spec: Spec, into: Path, wanted: str, tell: Callable[[str], None]) -> None:
    """Fetch the snapshots that `wanted` names (see `Download`) into a folder. Raises ScoreError if the store
    cannot be read."""
    into.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", processes.entry("oarlock.agent.snapshots.downloader")],
        env={**os.environ, **spec.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a library's traceback may contain a key
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            order = Download(spec.snapshots, spec.run, str(into), _PATIENCE, wanted=wanted)
            process.stdin.write(json.dumps(ORDERS.to_data(order)).encode() + b"\n")
            process.stdin.flush()
            for text in process.stdout:
                _hear(text, spec, tell)
            code = process.wait()
        finally:
            process.kill()
    if code:
        raise ScoreError(f"the process that fetches snapshots ended with {processes.shell_code(code)}")


def _hear(text: bytes, spec: Spec, tell: Callable[[str], None]) -> None:
    try:
        line = LINES.from_data(json.loads(text))
    except ValueError:
        return  # a library may print, too
    if isinstance(line, Note):
        tell(line.text)
    elif isinstance(line, MissingPackage):
        raise ScoreError(line.reason(spec.brings_crew))
    elif isinstance(line, Failed):
        raise ScoreError(line.reason)
