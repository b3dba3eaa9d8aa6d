"""A training whose machine is lost, disk and all, goes on elsewhere from its snapshot on a real S3 server and
ends with the bits of one that was left alone. The programs are those of test_exact_resume.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.system import processes
from tests.support import diaries
from tests.support.diaries import BATCHES, PATIENCE, Diary
from tests.support.gangs import Gang, until_gone
from tests.support.soaking import only_in_soak
from tests.support.stores import BUCKET, Store, complete, needs_store, newest, serving

pytestmark = needs_store

STEPS, SAVE = 60, 7  # no snapshot is of the end of an epoch, which has 10 steps
SLOWLY = 0.2  # seconds in a step, so that a snapshot is complete long before the end


@pytest.fixture
def store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Its keys are made up for the test, and when that is over they are in no file of a machine."""
    with serving(tmp_path / "bucket", monkeypatch) as store:
        yield store
    machines = [path for path in tmp_path.iterdir() if path != store.folder]
    files = [path for machine in machines for path in machine.rglob("*") if path.is_file()]
    secrets = (store.key.encode(), store.secret.encode())
    assert not [path for path in files if any(secret in path.read_bytes() for secret in secrets)]


@only_in_soak  # test_snapshots.py loses a machine, test_exact_resume.py compares the bits
@pytest.mark.parametrize("program", ["torch", "fit", "loop", "jax"])
def test_on_a_fresh_machine_the_result_is_the_same_to_the_last_bit(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    def train(machine: str, pause: float = 0.0, **fields: Any) -> Gang:
        """Nothing of another machine is there: neither records and checkpoints, nor the program."""
        monkeypatch.setenv("OARLOCK_HOME", str(tmp_path / machine / "home"))
        return diaries.start(tmp_path / machine / "job", program, STEPS, save=SAVE, pause=pause, **fields)

    calm = train("calm")
    assert calm.end(PATIENCE).state == "succeeded", calm.told()

    snapshots: dict[str, Any] = {"run": "moved", "storage": {"snapshots": f"s3://{BUCKET}/mine"}}
    first = train("first", SLOWLY, **snapshots)
    first.until(lambda gang: _is_past_a_snapshot(gang, store), "step after a snapshot", PATIENCE)
    _kill_all(first)
    store.settle()
    there = newest(complete(store))
    [before] = diaries.read(first)
    (tmp_path / "first").rename(tmp_path / "lost")

    second = train("second", **snapshots)
    assert second.end(PATIENCE).state == "succeeded", second.told()
    assert (second.state.generation, second.state.restarts) == (2, 0), second.told()
    fetched = [
        event for event in second.of("note") if f"fetched snapshot step-{there:010}-g1" in event["text"]
    ]
    assert fetched, second.told()
    [after] = diaries.read(second)
    print(f"{program}: lost after step {before.last}, went on from step {there}")
    _check_steps(before, after, there)
    [alone] = diaries.read(calm)
    assert [len(made) for made in alone.made] == [STEPS, STEPS]
    diaries.check_losses(alone, [before, after])
    diaries.check_results(calm, second, STEPS)


def _is_past_a_snapshot(gang: Gang, store: Store) -> bool:
    """And in the middle of an epoch that is not the first; the steps since then have to be made again."""
    there = newest(complete(store))
    return there > BATCHES.steps_per_epoch and diaries.made_so_far(gang) > there + 1


def _kill_all(gang: Gang) -> None:
    """As when the power fails: nobody can do anything about the end of another."""
    assert gang.state.agent
    everybody = [gang.state.agent, *processes.descendants(gang.state.agent)]
    assert len(everybody) > 3, "agent, tasks, and who uploads"
    for pid in everybody:
        processes.send(pid, signal.SIGKILL)
    until_gone(everybody)


def _check_steps(before: Diary, after: Diary, there: int) -> None:
    """It goes on with the very step of the snapshot, and every step was made with its own examples."""
    assert 0 < there <= before.last + 1 < STEPS
    for rank in range(2):
        steps = [step for step, _ in before.began[rank]]
        assert steps == list(range(len(steps)))
        assert [step for step, _ in after.began[rank]] == list(range(there, STEPS))
        for step, examples in [*before.began[rank], *after.began[rank]]:
            assert examples == BATCHES.mine(step, rank=rank, world=2), (step, rank)
