"""Where a run's time went: streams made by hand, and streams made by chance."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from oarlock.run.accounting import PARTS, Accounts
from oarlock.run.run_state import RunState, fold
from tests.support.gangs import Gang

Event = dict[str, Any]
TASKS = ["worker-0", "worker-1"]
BEGIN: list[Event] = [
    {"t": 100, "kind": "run", "job": "mnist", "tasks": TASKS},
    {"t": 101, "kind": "agent", "pid": 7},
    {"t": 102, "kind": "ready", "seconds": 1.0},
]


def formed(t: float, generation: int = 1, tasks: list[str] = TASKS) -> list[Event]:
    started = [{"t": t, "kind": "task", "task": name, "state": "started", "pid": 1} for name in tasks]
    return [{"t": t, "kind": "generation", "generation": generation, "tasks": tasks}, *started]


def ended(t: float, code: int = 0, tasks: list[str] = TASKS) -> list[Event]:
    return [{"t": t, "kind": "task", "task": name, "state": "ended", "code": code} for name in tasks]


def report(t: float, step: Any, task: str = "worker-0") -> Event:
    return {"t": t, "kind": "report", "task": task, "step": step}


def restart(t: float, **fields: Any) -> Event:
    return {"t": t, "kind": "restart", "reason": "killed", "left": 2, **fields}


def end(t: float, state: str = "succeeded") -> Event:
    return {"t": t, "kind": "end", "state": state, "code": 0}


def accounts(*told: Any) -> Accounts:
    """Of a run with these events, some of them in lists."""
    events = [event for item in told for event in (item if isinstance(item, list) else [item])]
    return fold("run", [*BEGIN, *events]).accounts


def seconds(kept: Accounts, now: float | None = None) -> dict[str, float]:
    """The parts that are not empty."""
    return {name: spent / 1e6 for name, spent in kept.at(now).items() if spent}


def test_a_run_that_went_well() -> None:
    kept = accounts(formed(103), report(105, 1), report(109, 9), ended(112), end(112.5))
    assert seconds(kept) == {"start": 3, "rendezvous": 2, "step": 7, "waiting": 0.5}
    told = kept.in_seconds()
    assert list(told) == ["total", *PARTS, "goodput"]
    assert (told["total"], told["goodput"]) == (12.5, 7 / 12.5)


def test_a_failed_generation_loses_what_followed_its_last_step() -> None:
    kept = accounts(
        *(formed(103), report(104, 1), report(108, 5), ended(109, 137), restart(110)),
        *(formed(112, 2), report(113, 6), report(115, 8), ended(115), end(115)),
    )
    assert seconds(kept) == {"start": 3, "rendezvous": 2, "step": 6, "lost": 1, "waiting": 3}


def test_steps_done_again_count_once() -> None:
    """Ten steps of a second each; after the failure steps 5 to 10 are done again."""
    kept = accounts(
        *(formed(103), *(report(104 + step, step) for step in range(1, 11)), ended(115, 1), restart(115)),
        *(formed(115, 2), *(report(111 + step, step) for step in range(5, 13)), ended(123), end(123)),
    )
    # Step 1 and step 5 of the second generation are in their rendezvous.
    assert seconds(kept) == {"start": 3, "rendezvous": 3, "step": 3 + 7, "lost": 6 + 1}


def test_the_steps_between_two_reports_took_equally_long() -> None:
    kept = accounts(
        *(formed(103), report(103, 10), report(113, 20), restart(113)),
        *(formed(113, 2), report(113, 17), report(123, 27), end(123)),
    )
    assert seconds(kept) == {"start": 3, "step": 6 + 10, "lost": 4}


def test_what_was_lost_stays_lost_however_often_it_is_lost_again() -> None:
    """Everything is done three times: a third of the time was good."""
    kept = accounts(
        *(formed(103), report(103, 0), report(113, 10), restart(113)),
        *(formed(113, 2), report(113, 0), report(123, 10), restart(123)),
        *(formed(123, 3), report(123, 0), report(133, 10), end(133)),
    )
    assert seconds(kept) == {"start": 3, "step": 10, "lost": 20}


def test_the_first_to_report_a_step_has_done_it_for_all() -> None:
    """A slower peer, an evaluator and a report without a step change nothing."""
    told = [
        *(report(104, 1), report(106, 3), report(107, 3, "worker-1"), report(107, 2, "worker-1")),
        *(report(108, 99, "evaluator-0"), report(108, "nan"), report(108, None), report(108, float("inf"))),
    ]
    kept = accounts(formed(103), *told, restart(109))
    assert seconds(kept) == {"start": 3, "rendezvous": 1, "step": 2, "lost": 3}


def test_an_evaluator_does_not_end_the_rendezvous() -> None:
    kept = accounts(formed(103), report(104, 50, "evaluator-0"), report(106, 1), end(107))
    assert seconds(kept) == {"start": 3, "rendezvous": 3, "step": 1}


def test_a_program_that_never_reports_only_steps() -> None:
    silent = [formed(103), ended(110), restart(111), formed(113, 2)]
    assert seconds(accounts(*silent, ended(120), end(120))) == {"start": 3, "step": 14, "waiting": 3}
    # While it runs nobody knows yet whether it will ever report.
    live = accounts(*silent)
    assert live.in_seconds(115)["goodput"] is None
    assert seconds(live, 115) == {"start": 3, "step": 7, "waiting": 3, "rendezvous": 2}


def test_a_generation_that_died_before_its_first_step_was_only_a_rendezvous() -> None:
    silent = [formed(103), ended(110), restart(111), formed(113, 2)]
    kept = accounts(*silent, report(114, 1), report(116, 2), end(116))
    assert seconds(kept) == {"start": 3, "rendezvous": 8, "step": 2, "waiting": 3}


def test_a_checkpoint_is_taken_out_of_the_steps() -> None:
    def saved(t: float, seconds: Any, task: str = "worker-0") -> Event:
        return {"t": t, "kind": "checkpoint", "task": task, "seconds": seconds}

    told = [formed(103), report(103, 1), report(107, 5)]
    kept = accounts(*told, saved(109, 1.5), report(110, 6), end(110))
    assert seconds(kept) == {"start": 3, "step": 5.5, "checkpoint": 1.5}
    # Its report may be in the record before it; the other members save at the same time.
    kept = accounts(*told, saved(107, 1.5), saved(107, 1.5, "worker-1"), end(110))
    assert seconds(kept) == {"start": 3, "step": 5.5, "checkpoint": 1.5}
    # Never more than there was, whatever is told.
    kept = accounts(*told, saved(107, 1e9), saved(107, -1), saved(107, "x"), saved(107, None), end(107))
    assert seconds(kept) == {"start": 3, "checkpoint": 4}


def test_a_lost_run_that_is_resumed_waited() -> None:
    lost = [formed(103), report(104, 1), report(108, 5), {"t": 109, "kind": "note", "text": "x"}]
    resumed = [{"t": 500, "kind": "agent", "pid": 8}, formed(502, 2), report(503, 4), end(504)]
    kept = accounts(*lost)
    assert seconds(kept) == {"start": 3, "rendezvous": 1, "step": 5}  # as if it went on
    kept = accounts(*lost, *resumed)
    assert seconds(kept) == {"start": 5, "rendezvous": 2, "step": 2 + 1, "lost": 2 + 1, "waiting": 391}


def test_a_failed_run_that_is_resumed_waited_too() -> None:
    kept = accounts(formed(103), report(104, 1), end(105, "failed"))
    assert seconds(kept, 400) == {"start": 3, "rendezvous": 1, "lost": 1}  # its clock has stopped
    kept.apply({"t": 300, "kind": "agent", "pid": 8})
    assert seconds(kept, 310) == {"start": 3 + 10, "rendezvous": 1, "lost": 1, "waiting": 195}


def test_an_agent_that_died_before_the_first_generation() -> None:
    kept = accounts({"t": 200, "kind": "agent", "pid": 8}, formed(201), end(202))
    assert seconds(kept) == {"start": 3, "waiting": 98, "step": 1}


def test_a_task_that_starts_again_alone_ends_no_generation() -> None:
    trio = [*TASKS, "evaluator-0"]
    told = [formed(103, tasks=trio), report(103, 1), ended(104, 1, ["evaluator-0"])]
    kept = accounts(*told, restart(104, task="evaluator-0", alone=True), report(106, 4), end(106))
    assert seconds(kept) == {"start": 3, "step": 3}


def test_the_only_trainer_that_starts_again_alone_has_lost_its_work() -> None:
    pair = ["worker-0", "evaluator-0"]
    told = [formed(103, tasks=pair), report(103, 1), report(106, 4), ended(107, 1, ["worker-0"])]
    alone = restart(107, task="worker-0", alone=True)
    kept = accounts(*told, alone, report(108, 2), report(111, 5), end(111))
    assert seconds(kept) == {"start": 3, "step": 3, "rendezvous": 1, "lost": 4}
    # Beside parameter servers it finds the variables where it left them.
    trio = [*pair, "ps-0"]
    told = [formed(103, tasks=trio), report(103, 1), report(106, 4), ended(107, 1, ["worker-0"])]
    kept = accounts(*told, alone, report(108, 2), report(111, 5), end(111))
    assert seconds(kept) == {"start": 3, "step": 8}


def test_a_task_that_is_quick_to_die_ends_no_generation_before_the_others_have() -> None:
    first, quick, slow = formed(103)
    told = [first, quick, ended(104, 1, ["worker-0"]), {**slow, "t": 105}, ended(106), restart(107)]
    kept = accounts(*told)
    assert seconds(kept) == {"start": 3, "step": 3, "waiting": 1}


def test_a_live_run_is_accounted_for_up_to_now() -> None:
    assert seconds(accounts(), 104) == {"start": 4}
    assert seconds(accounts(formed(103)), 104) == {"start": 3, "rendezvous": 1}
    assert seconds(accounts(formed(103), report(104, 1)), 106) == {"start": 3, "rendezvous": 1, "step": 2}
    stopped = [formed(103), report(103, 1), restart(104)]
    assert seconds(accounts(*stopped), 106) == {"start": 3, "lost": 1, "waiting": 2}


def test_clocks_that_disagree_never_make_time_run_backwards() -> None:
    odd = [report(10, 2), report(float("inf"), 3), report(1e30, 4)]
    kept = accounts(formed(103), report(105, 1), *odd, report(106, 6), end(107))
    assert seconds(kept) == {"start": 3, "rendezvous": 2, "step": 2}
    kept = accounts(formed(103), report(105, 1), restart(104), formed(106, 2))
    assert seconds(kept) == {"start": 3, "rendezvous": 2, "waiting": 1}


def test_a_long_run_is_remembered_in_little() -> None:
    steps = 5000
    kept = accounts(formed(103), *(report(103 + step, step) for step in range(steps + 1)))
    assert len(kept.steps) <= 512
    assert seconds(kept) == {"start": 3, "step": steps}
    for event in [restart(103 + steps), *formed(103 + steps, 2), report(103 + steps, 2001)]:
        kept.apply(event)
    assert seconds(kept) == {"start": 3, "step": 2000, "lost": 3000}


@pytest.mark.parametrize("seed", range(300))
def test_the_parts_always_add_up_to_the_length(seed: int) -> None:
    chance = random.Random(seed)
    state, stream = RunState("run"), by_chance(chance)
    for number, event in enumerate(stream):
        state.apply(event)
        assert_exact(state.accounts, stream[: number + 1], chance)
        if chance.random() < 0.1:  # as if it were read from a record
            state = RunState.from_data(json.loads(json.dumps(state.to_data())))


def assert_exact(kept: Accounts, stream: list[Event], chance: random.Random) -> None:
    """To the last microsecond, for every beginning of the stream, at its last event and later."""
    is_over = stream[-1]["kind"] == "end"
    last = max(event["t"] for event in stream)
    length = round(last * 1e6) - round(stream[0]["t"] * 1e6)
    for later in (None, 0.0, chance.random() * 100):
        now = None if later is None else last + later
        more = 0 if now is None or is_over else round(now * 1e6) - round(last * 1e6)
        parts = kept.at(now)
        assert set(parts) == set(PARTS)
        assert all(isinstance(spent, int) and spent >= 0 for spent in parts.values()), parts
        assert sum(parts.values()) == length + more
        told = kept.in_seconds(now)
        assert round(sum(told[name] or 0 for name in PARTS) * 1e6) == round((told["total"] or 0) * 1e6)
        assert told["goodput"] is None or 0 <= told["goodput"] <= 1


def by_chance(chance: random.Random) -> list[Event]:
    """Not what a run does, but all that its events could ever say, in any order."""
    tasks = chance.choice([["worker-0"], TASKS, [*TASKS, "evaluator-0"], ["chief-0", "worker-0", "ps-0"]])
    t = chance.uniform(0, 2e9)
    stream: list[Event] = [{"t": t, "kind": "run", "job": "x", "tasks": tasks}]
    for _ in range(chance.randrange(60)):
        t += chance.choice([0.0, 1e-6, chance.random(), chance.expovariate(0.05)])
        task = chance.choice(tasks)
        now, t = t, max(0.0, t - chance.choice([0.0, 0.0, chance.random()]))  # another machine's clock
        stream.append(
            chance.choice(
                [
                    {"t": t, "kind": "agent", "pid": 1},
                    {"t": t, "kind": "generation", "generation": 1, "tasks": tasks},
                    {"t": t, "kind": "task", "task": task, "state": "started", "pid": 1},
                    {"t": t, "kind": "task", "task": task, "state": "ended", "code": 1},
                    *(report(t, chance.randrange(-5, 30), task) for _ in range(5)),
                    {"t": t, "kind": "checkpoint", "task": task, "seconds": chance.expovariate(0.2)},
                    restart(t, task=task, alone=chance.random() < 0.5),
                    {"t": t, "kind": "note", "text": "x"},
                    end(t, chance.choice(["succeeded", "failed"])),
                ]
            )
        )
        t = now
        if stream[-1]["kind"] == "end":  # only a new agent follows it
            t += chance.random()
            stream.append({"t": t, "kind": "agent", "pid": 2})
    return stream


TRAIN = """
import time, oarlock
me = oarlock.current()
first = 1 if me.generation == 1 else 11
for step in range(first, 10**6 if me.generation == 1 else 61):
    time.sleep(0.05)
    me.report(step, total=60)
"""


def test_a_real_run_with_a_kill(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", TRAIN).until_step(40)
    gang.kill("worker-1")
    state = gang.end()
    assert (state.state, state.generation) == ("succeeded", 2), gang.told()
    first, last = gang.events[0], gang.events[-1]
    spent = state.accounts.at()
    assert sum(spent.values()) == round(last["t"] * 1e6) - round(first["t"] * 1e6)
    assert spent == gang.run.state().accounts.at()  # the record says the same
    assert all(spent[part] > 0 for part in PARTS if part != "checkpoint"), spent
    assert spent["checkpoint"] == 0
    # Sixty steps of 50 ms were kept, but two of them are in a rendezvous; steps 11 to 40 were done twice.
    assert spent["step"] >= 57 * 50_000
    assert spent["lost"] >= 28 * 50_000
    [formed] = [event for event in gang.of("generation") if event["generation"] == 1]
    assert spent["start"] == round(formed["t"] * 1e6) - round(first["t"] * 1e6)
