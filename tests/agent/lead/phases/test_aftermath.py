"""A run that succeeds names the trainers that failed beside its leader task."""

from __future__ import annotations

import pytest

from oarlock.agent.lead.phases.aftermath import failed_beside
from oarlock.agent.lead.phases.generation import Generation
from oarlock.agent.protocol.outcome import Outcome
from oarlock.run.cluster import form

FAILED = Outcome("worker-1", code=1, error={"type": "ValueError", "message": "too far"}, failed_at=2.0)
OTHER = Outcome("worker-2", code=9, failed_at=1.0)
CASES = {
    "all ended well": ([Outcome("worker-1", code=0)], ""),
    "one was ended by its host": ([Outcome("worker-1", code=143, ours=True)], ""),
    "one still runs": ([Outcome("worker-1")], ""),
    "one failed": ([FAILED], "but worker-1 failed: ValueError: too far"),
    "two failed": ([FAILED, OTHER], "but worker-1, worker-2 failed: exit code 9"),
    "an evaluator failed, which is no trainer": ([Outcome("evaluator-0", code=1)], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_who_failed(case: str) -> None:
    outcomes, said = CASES[case]
    generation = Generation(1, 0.0, form({"worker": 3, "evaluator": 1}))
    generation.take([Outcome("worker-0", code=0), *outcomes])
    assert failed_beside(generation) == said
