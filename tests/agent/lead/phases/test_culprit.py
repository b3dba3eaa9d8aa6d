"""Which of several ends is the failure, and what it is known by."""

from __future__ import annotations

from signal import SIGABRT, SIGKILL

from oarlock.agent.lead.phases import culprit
from oarlock.agent.protocol.failure_fields import describe, exit_code
from oarlock.agent.protocol.outcome import Outcome

RAISED = {"type": "ValueError", "message": "no such column", "where": "train.py:3"}


def test_who_was_killed_is_named_before_those_who_complain_about_it() -> None:
    raised = Outcome("worker-0", code=1, error=RAISED, failed_at=1.0)
    gave_up = Outcome("worker-1", code=134, signal=SIGABRT, failed_at=0.5)
    killed = Outcome("worker-2", code=137, signal=SIGKILL, failed_at=2.0)
    ended = Outcome("worker-3", code=137, signal=SIGKILL, ours=True)
    assert culprit.find([raised, gave_up, killed, ended]) == killed
    assert culprit.find([raised, gave_up, ended]) == gave_up
    assert culprit.find([ended]) is None


def test_one_error_is_the_same_whether_its_task_ended_by_itself_or_was_ended_just_before() -> None:
    itself = Outcome("worker-0", code=1, error=RAISED, failed_at=1.0)
    ended = Outcome("worker-1", code=137, signal=SIGKILL, ours=True, error=RAISED, failed_at=1.0)
    assert culprit.signature(itself) == culprit.signature(ended)
    assert exit_code(itself) == exit_code(ended) == 1


def test_a_gpu_without_memory_is_the_same_failure_whatever_the_sizes_and_the_line() -> None:
    errors = [
        {**RAISED, "message": f"CUDA out of memory. Tried to allocate {size}.00 GiB", "where": where}
        for size, where in ((1, "step.py:24"), (2, "step.py:25"))  # forward, backward
    ]
    full = [
        Outcome(f"worker-{at}", code=1, error=error, failed_at=1.0, trouble="memory", advice="GPU 0 ran out")
        for at, error in enumerate(errors)
    ]
    assert culprit.signature(full[0]) == culprit.signature(full[1])
    assert describe(full[0])["reason"] == "GPU 0 ran out"
    assert describe(full[0])["message"] == errors[0]["message"]
    assert culprit.is_exhausted(full[0])
    assert not culprit.is_exhausted(None)


def test_nccl_complains_about_others() -> None:
    complains = Outcome("worker-0", code=1, failed_at=1.0, trouble="peer", advice="NCCL lost another task")
    raised = Outcome("worker-1", code=1, error=RAISED, failed_at=1.5)
    assert culprit.find([complains, raised]) == raised
    assert culprit.find([complains]) == complains
