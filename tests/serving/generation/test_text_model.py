"""A loaded text model: prompts in and completions out, and a stream for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from oarlock.models.model_manifest import Manifest
from oarlock.serving.generation.sampling import Sampling
from oarlock.serving.generation.scheduler import Pass
from oarlock.serving.generation.text_model import PLAIN, TextModel
from oarlock.serving.runtimes.runtime import ModelError, Overloaded
from tests.support.text_generators import DEADLINE, Array, Bytewise
from tests.support.waiting import eventually

MANIFEST = Manifest("python", (), (), kind="completion", run="some-run")


@pytest.fixture
def model() -> Iterator[TextModel]:
    found = TextModel(MANIFEST, Bytewise(slots=3))
    yield found
    found.close()


def prompts(*texts: str) -> dict[str, Array]:
    return {"prompt": np.array(texts, dtype=object)}


def test_the_manifest_says_what_it_takes_and_gives(model: TextModel) -> None:
    assert [one.to_data() for one in model.manifest.inputs] == [
        {"name": "prompt", "dtype": "string", "shape": [None]}
    ]
    assert [one.name for one in model.manifest.outputs] == ["completion"]
    assert model.manifest.run == "some-run"
    assert model.form == "text, 3 at a time"


def test_prompts_are_completed_the_same_each_time_alone_and_together(model: TextModel) -> None:
    together = model.run(prompts("one", "two", "", "three", "four"))["completion"]
    assert together.shape == (5,)
    assert [len(text) for text in together] == [PLAIN.max_tokens] * 5
    assert len(set(together)) == 5
    assert model.run(prompts("two"))["completion"].tolist() == [together[1]]
    asked = asyncio.run(model.predict(prompts("two", "four")))["completion"]
    assert asked.tolist() == [together[1], together[4]]


def test_a_prompt_that_came_as_bytes_is_text_too(model: TextModel) -> None:
    given = {"prompt": np.array([b"two"], dtype=object)}
    assert model.run(given)["completion"].tolist() == model.run(prompts("two"))["completion"].tolist()


def test_a_stream_that_is_closed_frees_its_slots(model: TextModel) -> None:
    async def begin() -> None:
        stream = model.open([[1], [2]], Sampling(max_tokens=10**9))
        assert await stream.pieces()
        stream.close()

    asyncio.run(begin())
    assert eventually(lambda: model.scheduler.load == (0, 0), "free slots")


def test_a_loop_that_is_closed_frees_the_slots_as_well(model: TextModel) -> None:
    async def begin() -> None:
        await model.open([[1]], Sampling(max_tokens=10**9)).pieces()

    asyncio.run(begin())
    assert eventually(lambda: model.scheduler.load == (0, 0), "free slots")


def test_what_is_served_is_bounded_and_counted(model: TextModel) -> None:
    passes: list[Pass] = []
    model.serve(queue=1e-12, deadline=DEADLINE, note=passes.append)
    model.run(prompts("one", "two"))
    assert eventually(lambda: sum(one.tokens for one in passes) == 2 * PLAIN.max_tokens, "all tokens")
    assert all(one.seconds > 0 for one in passes)

    async def many() -> None:
        model.open([[1], [2], [3]], Sampling(max_tokens=10**9))
        with pytest.raises(Overloaded):
            model.open([[4]], Sampling())

    asyncio.run(many())


class Broken(Bytewise):
    """Fails when several texts are read at a time, as a model with an error in its cache may."""

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> Array:
        if len(slots) > 1:
            raise IndexError("out of range")
        return super().step(slots, positions, tokens)


def test_a_model_that_cannot_write_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(ModelError, match="The model fails at its first text: IndexError: out of range"):
        TextModel(MANIFEST, Broken())


def test_a_model_that_sees_a_single_token_writes_too() -> None:
    generator = Bytewise(slots=1, context=1)
    model = TextModel(MANIFEST, generator)
    try:
        assert len(model.run(prompts("a longer prompt"))["completion"][0]) == PLAIN.max_tokens
    finally:
        model.close()
