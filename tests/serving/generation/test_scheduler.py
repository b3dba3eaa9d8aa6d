"""Continuous batching: texts join and leave between two steps, and none notices another."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from oarlock.serving.generation.completion import LENGTH
from oarlock.serving.generation.generator import Generator
from oarlock.serving.generation.scheduler import Scheduler
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.serving.served import Overloaded
from tests.support.text_generators import Array, Bytewise, Gated, Reading
from tests.support.waiting import eventually

Schedule = Callable[..., Scheduler]
LONG = 1e6  # seconds of work that may wait


@pytest.fixture
def schedule() -> Iterator[Schedule]:
    made: list[Scheduler] = []
    gated: list[Gated] = []

    def make(generator: Generator, queue: float = LONG) -> Scheduler:
        made.append(Scheduler(generator, queue))
        if isinstance(generator, Gated):
            gated.append(generator)
        return made[-1]

    yield make
    for generator in gated:
        generator.allow(100_000)
    for scheduler in made:
        scheduler.close()


def submit(scheduler: Scheduler, *readings: Reading) -> None:
    scheduler.submit([one.completion for one in readings])


def test_each_text_is_what_it_is_alone_whatever_is_written_beside_it(schedule: Schedule) -> None:
    generator, chance = Bytewise(slots=5, context=32), random.Random(3)
    scheduler = schedule(generator)
    asked = [("p" * chance.randint(1, 50) + str(number), chance.randint(1, 90)) for number in range(60)]
    readings = [Reading(prompt, count) for prompt, count in asked]
    threads = [threading.Thread(target=submit, args=(scheduler, *readings[part::4])) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (prompt, count), reading in zip(asked, readings):
        assert reading.text().encode() == generator.text(prompt.encode(), count)
    assert generator.most == 5
    assert eventually(lambda: scheduler.load == (0, 0), "end")


def test_a_text_that_is_longer_than_the_context_goes_on_with_the_half_that_it_still_sees(
    schedule: Schedule,
) -> None:
    generator = Bytewise(slots=1, context=8)
    scheduler, reading = schedule(generator), Reading("a prompt that is too long", 40)
    submit(scheduler, reading)
    assert reading.text().encode() == generator.text(b"a prompt that is too long", 40)


def test_a_newcomer_joins_between_two_steps(schedule: Schedule) -> None:
    generator = Gated(slots=2)
    scheduler, first, second = schedule(generator), Reading("first", 1000), Reading("second", 3)
    submit(scheduler, first)
    first.piece()
    generator.allow(1)
    first.piece()
    submit(scheduler, second)
    generator.allow(3)
    assert second.text().encode() == generator.text(b"second", 3)
    assert generator.most == 2
    assert not first.completion.is_over


def test_one_that_ends_makes_room_for_the_next(schedule: Schedule) -> None:
    generator = Gated(slots=1)
    scheduler, first, second = schedule(generator), Reading("first", 2), Reading("second", 2)
    submit(scheduler, first, second)
    generator.allow(1)
    first.text()
    generator.allow(1)
    assert second.text().encode() == generator.text(b"second", 2)


def test_a_text_that_nobody_wants_any_more_frees_its_slot(schedule: Schedule) -> None:
    generator = Gated(slots=1)
    scheduler = schedule(generator)
    gone, waits, stays = Reading("gone", 10_000), Reading("waits", 10_000), Reading("stays", 2)
    submit(scheduler, gone, waits, stays)
    gone.piece()
    gone.completion.is_abandoned = waits.completion.is_abandoned = True
    generator.allow(2)  # the one that may have begun, and one for the text that stays
    assert stays.text().encode() == generator.text(b"stays", 2)
    assert eventually(lambda: scheduler.load == (0, 0), "free slot")


def test_more_work_than_may_wait_is_refused_as_a_whole(schedule: Schedule) -> None:
    generator = Gated(slots=1)
    scheduler = schedule(generator, queue=1e-9)
    first = Reading("first", 1000)
    submit(scheduler, first)
    generator.allow(1)
    first.piece(), first.piece()
    eventually(lambda: scheduler.load == (1, 0), "text")
    # The time of a step is known once the first one is over, and shortly after its piece has come.
    with pytest.raises(Overloaded) as refused:
        eventually(lambda: submit(scheduler, Reading("a"), Reading("b")), "refusal")
    assert refused.value.retry_after >= 1
    waiting = scheduler.load[1]
    with pytest.raises(Overloaded):
        submit(scheduler, Reading("c"), Reading("d"))
    assert scheduler.load[1] == waiting


def test_a_text_that_would_not_wait_is_never_refused(schedule: Schedule) -> None:
    generator = Gated(slots=2)
    scheduler, first, second = schedule(generator, queue=1e-9), Reading("first", 1000), Reading("b", 1)
    submit(scheduler, first)
    generator.allow(2)
    first.piece(), first.piece(), first.piece()  # the time of a step is known
    submit(scheduler, second)
    generator.allow(2)
    assert second.text().encode() == generator.text(b"b", 1)


def test_a_deadline_ends_a_text_with_what_it_has(schedule: Schedule) -> None:
    generator = Gated(slots=1)
    scheduler, late = schedule(generator), Reading("late", 1000)
    submit(scheduler, late)
    begun = late.piece().text
    late.completion.deadline = 0.0
    generator.allow(1)
    pieces = late.pieces()
    assert pieces[-1].finish == LENGTH
    said = begun + "".join(piece.text for piece in pieces)
    assert said.encode() == generator.text(b"late", 2)


def test_one_that_waits_until_its_deadline_is_told(schedule: Schedule) -> None:
    generator = Gated(slots=1)
    scheduler, first, late = schedule(generator), Reading("first", 1000), Reading("late", 1, seconds=0)
    submit(scheduler, first, late)
    assert isinstance(late.piece().problem, TimeoutError)


class Failing(Bytewise):
    """Fails in whichever step or start has a text that begins with x."""

    def start(self, slot: int, tokens: Sequence[int]) -> Array:
        scores = super().start(slot, tokens)
        if bytes(tokens) == b"xx":
            raise ModelError("no")
        return scores

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> Array:
        if any(self._kept[slot, 0] == ord("x") for slot in slots):
            raise RuntimeError("broken")
        scores = super().step(slots, positions, tokens)
        scores[[index for index, slot in enumerate(slots) if self._kept[slot, 0] == ord("n")]] = np.nan
        return scores


@pytest.mark.parametrize(("prompt", "kind"), [("xx", ModelError), ("x", RuntimeError), ("n", ModelError)])
def test_one_that_fails_spoils_no_other(schedule: Schedule, prompt: str, kind: type[Exception]) -> None:
    generator = Failing(slots=4)
    scheduler, bad = schedule(generator), Reading(prompt, 30)
    good = [Reading(name, 30) for name in ("a", "b", "c")]
    submit(scheduler, *good[:2], bad, good[2])
    for name, reading in zip("abc", good):
        assert reading.text().encode() == generator.text(name.encode(), 30)
    assert isinstance(bad.pieces()[-1].problem, kind)
    again = Reading("again", 30)
    submit(scheduler, again)
    assert again.text().encode() == generator.text(b"again", 30)


def test_a_seed_gives_the_same_text_again_beside_others_too(schedule: Schedule) -> None:
    scheduler = schedule(Bytewise(slots=4))
    alone = Reading("p", 50, temperature=1.0, seed=7)
    submit(scheduler, alone)
    first = alone.text()
    others = [Reading("p", 50, temperature=1.0, seed=seed, top_p=0.9) for seed in (8, 9, 10, 11)]
    again = Reading("p", 50, temperature=1.0, seed=7)
    submit(scheduler, *others[:2], again, *others[2:])
    assert again.text() == first
    assert len({first, *(one.text() for one in others)}) == 5


def test_closing_fails_what_is_not_complete(schedule: Schedule) -> None:
    generator = Gated(slots=1)
    scheduler, first, second = schedule(generator), Reading("first", 1000), Reading("second")
    submit(scheduler, first, second)
    first.piece()
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    generator.allow(10_000)
    closing.join()
    assert isinstance(first.pieces()[-1].problem, Overloaded)
    assert isinstance(second.pieces()[-1].problem, Overloaded)
    with pytest.raises(Overloaded):
        submit(scheduler, Reading("third"))
