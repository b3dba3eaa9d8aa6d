"""Ask the leading agent of a run that is running."""

from __future__ import annotations

from typing import Any

from oarlock.agent.net.control import UnreachableError
from oarlock.engines.engine import Engine, engine_of
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.system.polling import wait_for

_PATIENCE = 10.0  # seconds for an agent that has just been started

_WORDS = {"succeeded": "has succeeded", "failed": "has failed", "stopped": "was stopped", "lost": "was lost"}


class RunRefusedError(OarlockError):
    """The run, or its leading agent, cannot do that now."""

    exit_code = 2


def ask(run: RunFolder, question: dict[str, Any]) -> dict[str, Any]:
    """Return the leading agent's answer.

    Raises RunRefusedError with the agent's reason, or if the run is not running, and OarlockError if the
    agent does not answer.
    """
    attempt = _Attempt(engine_of(run), run, question)
    try:
        answer = wait_for(attempt, "answer", _PATIENCE)
    except TimeoutError:
        raise OarlockError(f"{run.name}: {attempt.error}") from None
    if not answer.get("ok"):
        raise RunRefusedError(f"{run.name}: {answer.get('why')}")
    return answer


def require_running(run: RunFolder) -> None:
    """Raise RunRefusedError if the run has ended."""
    if not run.is_running():
        raise RunRefusedError(f"{run.name} is not running: it {_WORDS.get(run.state().state, 'has ended')}")


class _Attempt:
    """One attempt after the other to get an answer; the last error says why there is none."""

    def __init__(self, engine: Engine, run: RunFolder, question: dict[str, Any]) -> None:
        self.engine = engine
        self.run = run
        self.question = question
        self.error: UnreachableError | None = None

    def __call__(self) -> dict[str, Any]:
        require_running(self.run)
        try:
            return self.engine.ask(self.run, self.question)
        except UnreachableError as error:
            self.error = error
            return {}
