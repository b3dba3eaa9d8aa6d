"""Batches: who shares one, who gets which rows, and who is turned away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.batching.batcher import Batcher
from oarlock.serving.counters import Blocks, Key
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.serving.served import Overloaded
from oarlock.serving.settings import Settings

Array = np.ndarray[Any, Any]
PATIENCE = 60.0  # seconds: a test that waits this long has failed


class Model:
    """Doubles what it gets, once it may: `gate` holds it up in the middle of a batch."""

    form = "Python"
    only_computes = False

    def __init__(self, is_batched: bool = True) -> None:
        rows = None if is_batched else 1
        self.manifest = Manifest(
            format="python",
            inputs=(Tensor("x", "float32", (rows, None)),),
            outputs=(Tensor("y", "float32", (rows, None)),),
        )
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.batches: list[list[float]] = []  # the first number of each row
        self.threads: list[threading.Thread] = []  # that computed them
        self.is_closed = False

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        self.batches.append([float(row[0]) for row in x])
        self.threads.append(threading.current_thread())
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        if (x < 0).any():
            raise ModelError("negative numbers are not doubled")
        return {"y": x * 2}

    def close(self) -> None:
        self.is_closed = True


def rows(*numbers: float, width: int = 2) -> dict[str, Array]:
    return {"x": np.array([[number] * width for number in numbers], dtype="float32")}


def firsts(answer: Mapping[str, Array]) -> list[float]:
    return [float(row[0]) for row in answer["y"]]


class Served:
    """A batcher whose model is held up, so that what is asked meanwhile waits."""

    def __init__(self, model: Model, **settings: Any) -> None:
        self.model = model
        self.blocks = Blocks(1)
        self.batcher = Batcher(model, Settings("m", "/m", **settings), self.blocks.counters(0))

    async def held(self) -> asyncio.Task[dict[str, Array]]:
        """Ask for one row, and return once the model is busy with it."""
        self.model.gate.clear()
        self.model.entered.clear()
        first = self.ask(0.5)
        await until(self.model.entered.is_set)
        return first

    def ask(self, *numbers: float, width: int = 2, deadline: float = PATIENCE) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.batcher.predict(rows(*numbers, width=width), deadline))

    def knows_a_row_to_take(self, seconds: float) -> None:
        for _ in range(100):
            self.batcher.pace.note(1, seconds)

    def count(self, name: str) -> float:
        return self.blocks.sums().get(Key("counter", name, ""), [0.0])[0]


async def until(is_true: Callable[[], bool]) -> None:
    async def look() -> None:
        while not is_true():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(look(), PATIENCE)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(test(), 2 * PATIENCE))


def test_a_lone_request_runs_at_once_and_alone() -> None:
    async def test() -> None:
        served = Served(Model())
        assert firsts(await served.ask(3)) == [6]
        assert served.model.batches == [[3]]

    run(test)


@pytest.mark.parametrize(
    ("only_computes", "seconds", "by_the_loop"),
    [(True, 0.00001, True), (True, 0.01, False), (False, 0.00001, False)],
)
def test_the_loop_itself_computes_what_is_known_to_be_quick(
    only_computes: bool, seconds: float, by_the_loop: bool
) -> None:
    async def test() -> None:
        served = Served(Model())
        served.model.only_computes = only_computes
        served.knows_a_row_to_take(seconds)
        assert firsts(await served.ask(3)) == [6]
        assert served.model.threads == [threading.current_thread() if by_the_loop else served.batcher._thread]
        with pytest.raises(ModelError, match="negative"):
            await served.ask(-1)

    run(test)


def test_a_model_that_was_never_timed_is_not_tried_in_the_loop() -> None:
    async def test() -> None:
        served = Served(Model())
        served.model.only_computes = True
        await served.ask(3)
        assert served.model.threads == [served.batcher._thread]

    run(test)


def test_quick_requests_that_come_at_once_are_still_a_batch_of_the_thread() -> None:
    async def test() -> None:
        served = Served(Model())
        served.model.only_computes = True
        served.knows_a_row_to_take(0.00001)
        asked = [served.ask(number) for number in (1, 2, 3)]
        assert [firsts(await one) for one in asked] == [[2], [4], [6]]
        assert set(served.model.threads) == {served.batcher._thread}

    run(test)


def test_a_quick_request_waits_while_the_model_is_busy() -> None:
    async def test() -> None:
        served = Served(Model())
        first = await served.held()
        served.model.only_computes = True
        served.knows_a_row_to_take(0.00001)
        second = served.ask(2)
        await until(lambda: served.batcher.waiting == 1)
        served.model.gate.set()
        assert (firsts(await first), firsts(await second)) == ([1], [4])
        assert set(served.model.threads) == {served.batcher._thread}

    run(test)


def test_what_waits_is_one_batch_in_order_and_each_gets_its_own_rows() -> None:
    async def test() -> None:
        served = Served(Model())
        first = await served.held()
        others = [served.ask(*range(10 * number, 10 * number + number)) for number in range(1, 6)]
        await until(lambda: served.batcher.waiting == 15)
        served.model.gate.set()
        assert firsts(await first) == [1]
        for number, other in enumerate(others, start=1):
            assert firsts(await other) == [2 * x for x in range(10 * number, 10 * number + number)]
        assert len(served.model.batches) == 2
        assert served.model.batches[1] == sorted(served.model.batches[1])
        assert served.batcher.waiting == 0

    run(test)


def test_a_batch_has_no_more_rows_than_the_settings_allow() -> None:
    async def test() -> None:
        served = Served(Model(), max_rows=4)
        await served.held()
        others = [served.ask(number, number) for number in range(1, 6)]
        await until(lambda: served.batcher.waiting == 10)
        served.model.gate.set()
        for number, other in enumerate(others, start=1):
            assert firsts(await other) == [2 * number] * 2
        assert all(len(batch) <= 4 for batch in served.model.batches)

    run(test)


def test_a_request_that_is_larger_than_a_batch_is_run_in_pieces() -> None:
    async def test() -> None:
        served = Served(Model(), max_rows=4)
        assert firsts(await served.ask(*range(1, 11))) == [2 * x for x in range(1, 11)]
        assert [len(batch) for batch in served.model.batches] == [4, 4, 2]

    run(test)


def test_requests_of_different_shapes_share_no_batch() -> None:
    async def test() -> None:
        served = Served(Model())
        await served.held()
        wide = [served.ask(number, width=3) for number in (1, 2)]
        narrow = [served.ask(number, width=2) for number in (3, 4)]
        await until(lambda: served.batcher.waiting == 4)
        served.model.gate.set()
        answers = [await one for one in (*wide, *narrow)]
        assert [one["y"].shape for one in answers] == [(1, 3), (1, 3), (1, 2), (1, 2)]
        assert served.model.batches[1:] == [[1, 2], [3, 4]]

    run(test)


def test_one_bad_request_spoils_no_other() -> None:
    async def test() -> None:
        served = Served(Model())
        await served.held()
        good, bad, also_good = served.ask(1), served.ask(-1), served.ask(2)
        await until(lambda: served.batcher.waiting == 3)
        served.model.gate.set()
        assert firsts(await good) == [2]
        assert firsts(await also_good) == [4]
        with pytest.raises(ModelError, match="negative"):
            await bad

    run(test)


def test_a_model_that_does_not_answer_row_by_row_is_asked_one_request_at_a_time() -> None:
    class Mean(Model):
        def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
            return {"y": super().run(inputs)["y"].mean(axis=0, keepdims=True)}

    async def test() -> None:
        served = Served(Mean())
        await served.held()
        others = [served.ask(1), served.ask(5)]
        await until(lambda: served.batcher.waiting == 2)
        served.model.gate.set()
        assert [firsts(await one) for one in others] == [[2], [10]]

    run(test)


def test_a_model_of_one_row_gets_one_request_at_a_time() -> None:
    async def test() -> None:
        served = Served(Model(is_batched=False))
        await served.held()
        others = [served.ask(number) for number in (1, 2, 3)]
        await until(lambda: served.batcher.waiting == 3)
        served.model.gate.set()
        assert [firsts(await one) for one in others] == [[2], [4], [6]]
        assert all(len(batch) == 1 for batch in served.model.batches)

    run(test)


def test_rows_whose_client_has_gone_are_not_computed() -> None:
    async def test() -> None:
        served = Served(Model())
        await served.held()
        gone, stays = served.ask(7), served.ask(8)
        await until(lambda: served.batcher.waiting == 2)
        gone.cancel()
        await asyncio.wait([gone], timeout=PATIENCE)
        served.model.gate.set()
        assert firsts(await stays) == [16]
        assert served.model.batches[1:] == [[8]]
        assert served.batcher.waiting == 0
        await until(lambda: served.count("dropped_total") == 1)

    run(test)


def test_a_late_request_gets_a_timeout_while_the_model_is_busy_and_is_not_computed() -> None:
    async def test() -> None:
        served = Served(Model())
        first = await served.held()
        late = served.ask(7, deadline=0.01)
        with pytest.raises(TimeoutError, match=r"0\.01 s"):
            await late
        served.model.gate.set()
        await first
        await until(lambda: served.batcher.waiting == 0)
        assert firsts(await served.ask(8)) == [16]
        assert [7.0] not in served.model.batches

    run(test)


def test_more_work_than_the_queue_may_hold_is_refused_with_the_time_to_wait() -> None:
    async def test() -> None:
        served = Served(Model(), queue=1.0)
        served.batcher.pace.note(1, 0.1)  # ten rows a second
        first = await served.held()
        taken = [served.ask(number) for number in range(10)]
        await until(lambda: served.batcher.waiting == 10)
        refused = served.ask(99)
        with pytest.raises(Overloaded) as problem:
            await refused
        assert 0.05 <= problem.value.retry_after <= 0.2
        assert served.count("refused_total") == 1
        served.model.gate.set()
        assert [firsts(await one) for one in (first, *taken)] == [[1], *([2 * x] for x in range(10))]
        assert [99.0] not in served.model.batches

    run(test)


def test_inputs_with_different_numbers_of_rows_are_refused() -> None:
    async def test() -> None:
        served = Served(Model())
        wrong = {"x": np.zeros((2, 2)), "z": np.zeros((3, 2))}
        with pytest.raises(ModelError, match=r"\[2, 3\]"):
            await served.batcher.predict(wrong, PATIENCE)

    run(test)


def test_what_waits_is_answered_before_the_model_is_released() -> None:
    async def test() -> None:
        served = Served(Model())
        first = await served.held()
        second = served.ask(4)
        await until(lambda: served.batcher.waiting == 1)
        closing = asyncio.get_running_loop().run_in_executor(None, served.batcher.close)
        served.model.gate.set()
        assert firsts(await first) == [1]
        assert firsts(await second) == [8]
        await closing
        assert served.model.is_closed

    run(test)


def test_an_error_that_nobody_expected_is_the_request_s_and_the_thread_lives() -> None:
    class Broken(Model):
        def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
            if inputs["x"][0, 0] == 13:
                raise ZeroDivisionError("thirteen")
            return super().run(inputs)

    async def test() -> None:
        served = Served(Broken())
        with pytest.raises(ZeroDivisionError, match="thirteen"):
            await served.ask(13)
        assert firsts(await served.ask(1)) == [2]

    run(test)


def test_many_clients_at_once_each_get_their_own_answer() -> None:
    async def test() -> None:
        served = Served(Model(), queue=PATIENCE)

        async def client(number: int) -> None:
            for turn in range(20):
                value = number * 100 + turn
                assert firsts(await served.ask(value, value + 0.5)) == [2 * value, 2 * value + 1]

        await asyncio.gather(*(client(number) for number in range(32)))
        assert served.batcher.waiting == 0
        assert sum(len(batch) for batch in served.model.batches) == 32 * 20 * 2

    run(test)
