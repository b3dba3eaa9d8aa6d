"""Commands that answer to whoever called us: with our terminal, with our streams, or all at once as JSON."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oarlock.screens.output import print_json

if TYPE_CHECKING:  # loaded only for a run on a cluster
    from oarlock.engines.kubernetes.api.client import Api

_NOT_FOUND, _NOT_ALLOWED = 127, 126  # as a shell reports them


def is_on_terminal() -> bool:
    return _is_typed() and sys.stdout.isatty()


def in_pod(api: Api, pod: str, words: Sequence[str], *, as_json: bool, types: bool = True) -> int:
    """The exit code. `types`: somebody may type into it, where no terminal is around it."""
    from oarlock.engines.kubernetes.api.pod_terminal import Ends, talk

    sys.stdout.flush()
    has_stdin = sys.stdin is not None and (types or not _is_typed())
    stdin = sys.stdin.fileno() if has_stdin else None
    if as_json:
        out, err = io.BytesIO(), io.BytesIO()
        code = talk(api, pod, words, Ends(stdin, out, err))
        _print(code, out.getvalue(), err.getvalue())
        return code
    if is_on_terminal():
        return talk(api, pod, words, Ends(sys.stdin.fileno(), sys.stdout.buffer, sys.stderr.buffer, True))
    return talk(api, pod, words, Ends(stdin, sys.stdout.buffer, sys.stderr.buffer))


def here_as_json(words: Sequence[str], folder: str | None = None) -> int:
    """On this machine."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
        code, out, err = done.returncode, done.stdout, done.stderr
    except OSError as problem:
        code = _NOT_FOUND if isinstance(problem, FileNotFoundError) else _NOT_ALLOWED
        out, err = b"", f"oarlock: {problem.filename}: {problem.strerror}\n".encode()
    code = code if code >= 0 else 128 - code
    _print(code, out, err)
    return code


def term() -> str:
    return os.environ.get("TERM") or "dumb"


def _is_typed() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()  # closed altogether, it is None


def _print(code: int, out: bytes, err: bytes) -> None:
    print_json({"code": code, "stdout": out.decode(errors="replace"), "stderr": err.decode(errors="replace")})
