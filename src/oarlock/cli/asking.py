"""Asking the agent of a run that is under way; what is not, is refused with a reason."""

from __future__ import annotations

import time
from typing import Any

from oarlock.agent import control
from oarlock.errors import OarlockError
from oarlock.runs import RunFolder

_PATIENCE = 10.0  # seconds for an agent that has just been started


class Refused(OarlockError):
    exit_code = 2


def ask(run: RunFolder, question: dict[str, Any]) -> dict[str, Any]:
    """The agent's answer; raises Refused with its reason, if it has one."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        require_running(run)
        try:
            answer = control.ask(run.path, question)
            break
        except control.UnreachableError as error:
            if time.monotonic() > deadline:
                raise OarlockError(f"{run.name}: {error}") from error
            time.sleep(0.05)
    if not answer.get("ok"):
        raise Refused(f"{run.name}: {answer.get('why')}")
    return answer


def require_running(run: RunFolder) -> None:
    if not run.is_held():
        raise Refused(f"{run.name} is not running: it {_WORDS.get(run.state().state, 'has ended')}")


_WORDS = {"succeeded": "has succeeded", "failed": "has failed", "stopped": "was stopped", "lost": "was lost"}
