"""Asking the agent of a run that is under way; what is not, is refused with a reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from oarlock.agent.net import control
from oarlock.errors import OarlockError
from oarlock.records.runs import RunFolder

_RETRY = 0.05  # seconds
_PATIENCE = 10.0  # seconds for an agent that has just been started


class Refused(OarlockError):
    exit_code = 2


def ask(run: RunFolder, question: dict[str, Any]) -> dict[str, Any]:
    """The agent's answer; raises Refused with its reason, if it has one."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        require_running(run)
        try:
            answer = _ask(run, question)
            break
        except control.UnreachableError as error:
            if time.monotonic() > deadline:
                raise OarlockError(f"{run.name}: {error}") from error
            time.sleep(_RETRY)
    if not answer.get("ok"):
        raise Refused(f"{run.name}: {answer.get('why')}")
    return answer


@contextmanager
def kept_fresh(run: RunFolder) -> Iterator[Callable[[], bool]]:
    """The record as the run goes on: a local run's agent writes it, a cluster's run needs us to. The function
    says whether there is more to come."""
    if not run.is_remote:
        yield run.is_held
        return
    from oarlock.engines.kubernetes import kubernetes_engine

    with kubernetes_engine.watching(run) as goes_on:
        yield goes_on


def _ask(run: RunFolder, question: dict[str, Any]) -> dict[str, Any]:
    if not run.is_remote:
        return control.ask(run.path, question)
    from oarlock.engines.kubernetes import kubernetes_engine

    return kubernetes_engine.ask(run, question)


def require_running(run: RunFolder) -> None:
    if not run.is_running():
        raise Refused(f"{run.name} is not running: it {_WORDS.get(run.state().state, 'has ended')}")


_WORDS = {"succeeded": "has succeeded", "failed": "has failed", "stopped": "was stopped", "lost": "was lost"}
