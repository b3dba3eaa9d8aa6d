"""The section `serve`: what may be written, and which scores pass."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock.errors import JobError
from oarlock.job.job_file import with_sets
from oarlock.job.model import Job, Replicas, Serve, parse
from oarlock.job.serve_section import Condition


def serve(**written: Any) -> Serve:
    found = parse({"program": "train.py", "serve": written}).serve
    assert found is not None
    return found


def test_a_number_is_short_for_replicas() -> None:
    found = parse({"program": "train.py", "serve": 3}).serve
    assert found is not None
    assert found.replicas == Replicas(3)


def test_what_its_machines_need_is_a_role() -> None:
    role = serve(replicas="1..4", cpu=2, memory="8Gi", gpu=1, image="python:3.11").role
    assert (role.replicas, role.cpu, role.memory.bytes, role.gpu) == (Replicas(1, 4), 2.0, 8 << 30, 1)
    assert role.image == "python:3.11"


@pytest.mark.parametrize(
    ("written", "scores", "why"),
    [
        ("accuracy >= 0.95", {"accuracy": 0.95}, None),
        ("accuracy>=0.95", {"accuracy": 0.94}, "accuracy is 0.94, not >= 0.95"),
        ("loss < 1e-2", {"loss": 0.001}, None),
        ("loss < -1", {"loss": 0.001}, "loss is 0.001, not < -1"),
        ("val/bleu-4 > 30", {"val/bleu-4": 30}, "val/bleu-4 is 30, not > 30"),
        ("loss <= 0.5", {"loss": 0.5}, None),
        ("accuracy >= 0.95", {"loss": 0.1, "note": "text"}, "there is no score accuracy; there is loss"),
        ("accuracy >= 0.95", {}, "there is no score accuracy; there is none"),
        ("accuracy >= 0.95", {"accuracy": float("nan")}, "there is no score accuracy; there is none"),
    ],
)
def test_a_score_passes_or_the_reason_is_said(written: str, scores: dict[str, Any], why: str | None) -> None:
    condition = serve(when=written).condition
    assert condition is not None
    assert condition.refusal(scores) == why


def test_no_condition_is_no_condition() -> None:
    assert serve().condition is None
    assert str(Condition.of("accuracy >=0.950")) == "accuracy >= 0.95"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"when": "accuracy"}, "serve.when: expected a score and a bound such as accuracy >= 0.95"),
        ({"when": "accuracy == 1"}, "serve.when"),
        ({"version": "latest"}, "serve.version: expected newest or best"),
        ({"batching": {"queue": 0}}, "serve.batching.queue: expected 0.01s or more"),
        ({"batching": {"max_rows": 0}}, "serve.batching.max_rows: expected 1 or more"),
        ({"port": 70000}, "serve.port: expected at most 65535"),
        ({"replica": 2}, "serve.replica: no such field; did you mean replicas?"),
    ],
)
def test_a_mistake_names_the_field(written: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError) as problem:
        serve(**written)
    assert said in str(problem.value)


def test_fields_of_a_job_can_be_set_by_their_path() -> None:
    job = Job(program="train.py", name="digits")
    changed = with_sets(job, ["serve.batching.max_rows=8", "serve.deadline=5s"])
    assert changed.serve is not None
    assert (changed.serve.batching.max_rows, changed.serve.deadline.seconds) == (8, 5)
    assert with_sets(job, []) is job
    with pytest.raises(JobError, match=r"--set serve.deadline=soon: expected a duration"):
        with_sets(job, ["serve.deadline=soon"])
