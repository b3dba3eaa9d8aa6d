"""What a failed task is said to have done, and the exit code it gives the run."""

from __future__ import annotations

from signal import SIGKILL

from oarlock.agent.protocol.failure_fields import describe, exit_code
from oarlock.agent.protocol.outcome import Outcome


def test_the_exit_code_is_the_tasks_own() -> None:
    assert exit_code(Outcome("worker-0", code=7, failed_at=1.0)) == 7
    assert exit_code(Outcome("worker-0", code=137, signal=SIGKILL, failed_at=1.0)) == 137
    assert exit_code(Outcome("worker-0", failed_at=1.0)) == 1  # it hangs after its error
    assert exit_code(None) == 1


def test_an_error_without_a_text_is_its_name() -> None:
    raised = {"type": "ValueError", "message": "no such column", "where": "train.py:3"}
    bare = {"type": "AssertionError", "message": "", "where": "train.py:3"}
    assert describe(Outcome("worker-0", code=1, error=bare))["reason"] == "AssertionError"
    assert describe(Outcome("worker-0", code=1, error=raised))["reason"] == "ValueError: no such column"


def test_a_signal_without_a_name_and_a_lack_of_memory_have_words() -> None:
    assert describe(Outcome("worker-0", code=170, signal=42))["reason"] == "killed by signal 42"
    assert describe(Outcome("worker-0", code=137, signal=SIGKILL))["reason"] == "killed by SIGKILL"
    starved = describe(Outcome("worker-0", code=137, signal=SIGKILL, starved=True))["reason"]
    assert starved.startswith("killed because memory ran out")
    assert "roles.worker.memory" in starved
