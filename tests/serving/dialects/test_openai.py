"""OpenAI's completions, by OpenAI's own client against a real server.

Its import takes a second, in every process that collects this file: it is left to those that run it.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from oarlock.serving.generation.generator import Generator
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.serving.settings import Settings
from tests.support.served_models import ServedModels, classifier, serving, writer
from tests.support.text_generators import DEADLINE, Array, Bytewise, Gated, Scripted
from tests.support.waiting import eventually


class Place:
    """A server, and a client of it."""

    def __init__(self, models: ServedModels, port: int) -> None:
        import openai

        self.models = models
        self.port = port
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=DEADLINE, max_retries=0
        )

    def complete(self, prompt: Any = "once", **chosen: Any) -> Any:
        return self.client.completions.create(model="m", prompt=prompt, **{"temperature": 0, **chosen})

    def streamed(self, prompt: Any = "once", **chosen: Any) -> list[Any]:
        return list(self.complete(prompt, stream=True, **chosen))

    def raw(self, body: Any, method: str = "POST") -> tuple[int, dict[str, Any]]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)) as connection:
            connection.request(
                method, "/v1/completions", body if isinstance(body, bytes) else json.dumps(body)
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    @property
    def load(self) -> tuple[int, int]:
        text = self.models.versions[0].text
        assert text is not None
        return text.scheduler.load


@contextmanager
def place_of(generator: Generator, queue: float = 1e6, deadline: float = DEADLINE) -> Iterator[Place]:
    settings = Settings("m", "models", queue=queue, deadline=deadline)
    if isinstance(generator, Gated):
        generator.is_held = False
    version = writer(generator)
    if isinstance(generator, Gated):
        generator.is_held = True
    models = ServedModels([version], settings=settings)
    text = version.text
    assert text is not None
    text.serve(queue, deadline, lambda done: None)
    try:
        with serving(models) as port:
            place = Place(models, port)
            with place.client:
                yield place
    finally:
        if isinstance(generator, Gated):
            generator.allow(100_000)
        text.close()


@pytest.fixture(scope="module")
def bytewise() -> Bytewise:
    return Bytewise()


@pytest.fixture(scope="module")
def place(bytewise: Bytewise) -> Iterator[Place]:
    with place_of(bytewise) as found:
        yield found


def test_a_completion(place: Place, bytewise: Bytewise) -> None:
    found = place.complete("once", max_tokens=20)
    assert found.object == "text_completion"
    assert found.model == "m"
    assert found.id.startswith("cmpl-")
    assert found.system_fingerprint == "version-1"
    (choice,) = found.choices
    assert choice.text.encode() == bytewise.text(b"once", 20)
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    usage = found.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (4, 20, 24)


def test_sixteen_tokens_are_usual(place: Place) -> None:
    assert place.complete("once").usage.completion_tokens == 16


def test_a_stream_says_the_same(place: Place, bytewise: Bytewise) -> None:
    events = place.streamed("once", max_tokens=20)
    assert "".join(event.choices[0].text for event in events).encode() == bytewise.text(b"once", 20)
    assert [event.choices[0].finish_reason for event in events] == [None] * (len(events) - 1) + ["length"]
    assert len({event.id for event in events}) == 1
    assert all(event.usage is None for event in events)


def test_a_stream_ends_with_done_and_the_usage_if_asked(place: Place) -> None:
    events = place.streamed("once", max_tokens=5, stream_options={"include_usage": True})
    assert events[-1].choices == []
    assert events[-1].usage.completion_tokens == 5
    with closing(http.client.HTTPConnection("127.0.0.1", place.port, timeout=DEADLINE)) as connection:
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "once", "stream": True}))
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.read().split(b"\n\n")
    assert lines[-2:] == [b"data: [DONE]", b""]


def test_several_prompts_and_several_texts_of_each(place: Place, bytewise: Bytewise) -> None:
    found = place.complete(["one", "two"], n=2, max_tokens=9)
    expected = [bytewise.text(prompt, 9).decode() for prompt in (b"one", b"one", b"two", b"two")]
    assert [choice.text for choice in found.choices] == expected
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert found.usage.completion_tokens == 36
    texts = dict.fromkeys(range(4), "")
    for event in place.streamed(["one", "two"], n=2, max_tokens=9):
        texts[event.choices[0].index] += event.choices[0].text
    assert list(texts.values()) == expected


def test_tokens_are_a_prompt_too(place: Place, bytewise: Bytewise) -> None:
    found = place.complete([[111, 110, 99, 101], [97]], max_tokens=9, echo=True)
    expected = [b"once" + bytewise.text(b"once", 9), b"a" + bytewise.text(b"a", 9)]
    assert [choice.text.encode() for choice in found.choices] == expected


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_echo_begins_with_the_prompt_and_may_be_all(place: Place, is_streamed: bool) -> None:
    found = place.complete("once", echo=True, max_tokens=0, stream=is_streamed)
    (event,) = found if is_streamed else [found]
    assert event.choices[0].text == "once"
    assert event.choices[0].finish_reason == "length"


def test_no_prompt_is_an_empty_one(place: Place, bytewise: Bytewise) -> None:
    status, found = place.raw({"temperature": 0})
    assert status == 200
    assert found["choices"][0]["text"].encode() == bytewise.text(b"\n", 16)


def test_a_seed_gives_the_same_texts_again(place: Place) -> None:
    first, again, other = (
        [choice.text for choice in place.complete("once", temperature=1, seed=seed, n=3).choices]
        for seed in (5, 5, -6)
    )
    assert first == again
    assert len({*first, *other}) == 6


def test_logprobs(place: Place, bytewise: Bytewise) -> None:
    chosen = {"max_tokens": 3, "logprobs": 2}
    found = place.complete("once", **chosen).choices[0].logprobs
    read, expected = b"once", []
    for byte in bytewise.text(b"once", 3):
        chances = np.log(np.exp(bytewise.scores(read)) / np.exp(bytewise.scores(read)).sum())
        expected.append(chances[byte])
        read += bytes([byte])
    assert "".join(found.tokens).encode() == read[4:]
    assert np.allclose(found.token_logprobs, expected, atol=1e-4)
    assert [max(likeliest, key=likeliest.get) for likeliest in found.top_logprobs] == found.tokens
    assert [len(likeliest) for likeliest in found.top_logprobs] == [2, 2, 2]
    assert found.text_offset == [0, 1, 2]
    events = place.streamed("once", **chosen)
    assert [event.choices[0].logprobs.tokens[0] for event in events] == found.tokens


def test_a_stop_string_across_tokens_ends_the_text_before_it() -> None:
    with place_of(Scripted(b"one ", b"two", b" thr", b"ee ", b"four")) as place:
        chosen = {"stop": ["two three", "five"], "max_tokens": 100}
        found = place.complete(**chosen)
        assert (found.choices[0].text, found.choices[0].finish_reason) == ("one ", "stop")
        events = place.streamed(**chosen)
        assert [event.choices[0].text for event in events] == ["one ", ""]
        assert events[-1].choices[0].finish_reason == "stop"


def test_what_waited_for_a_stop_string_is_sent_when_the_text_ends_without_one() -> None:
    with place_of(Scripted(b"one ", b"tw", b"o")) as place:
        found = place.complete(stop="two", max_tokens=2).choices[0]
        assert (found.text, found.finish_reason) == ("one tw", "length")
        events = place.streamed(stop="two", max_tokens=2)
        assert "".join(event.choices[0].text for event in events) == "one tw"


def test_the_model_may_end_the_text_itself() -> None:
    with place_of(Scripted(b"one ", b"two", b"")) as place:
        found = place.complete(max_tokens=100)
        assert (found.choices[0].text, found.choices[0].finish_reason) == ("one two", "stop")


def test_a_stream_has_whole_characters_only() -> None:
    text = "a€🙂é"
    with place_of(Scripted(*(bytes([byte]) for byte in text.encode()), b"")) as place:
        events = place.streamed(max_tokens=100)
        assert [event.choices[0].text for event in events] == [*text, ""]
        found = place.complete(max_tokens=5, logprobs=1).choices[0]
        assert (found.text, found.finish_reason) == ("a€", "length")
        assert found.logprobs.tokens == ["a", *(f"bytes:\\x{byte}" for byte in ("e2", "82", "ac", "f0"))]
        assert found.logprobs.text_offset == [0, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"prompt": 7}, "prompt is 7; send a text, a list of texts, or tokens as numbers"),
        ({"prompt": []}, "prompt is a list"),
        ({"prompt": [[]]}, "prompt is a list"),
        ({"prompt": ["a", 1]}, "prompt is a list"),
        ({"prompt": [5000]}, "prompt has the token 5000; this model's are 0 to 127"),
        ({"prompt": [-1]}, "prompt is a list"),
        ({"max_tokens": -1}, "max_tokens is -1, and a whole number of at least 0 is expected"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"max_tokens": True}, "max_tokens is true"),
        ({"temperature": 3}, "temperature is 3, and a number from 0.0 to 2.0 is expected"),
        ({"temperature": "hot"}, 'temperature is "hot"'),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -1}, "top_k is -1"),
        ({"n": 0}, "n is 0, and a whole number from 1 to 128 is expected"),
        ({"n": 100, "prompt": ["a", "b"]}, "2 prompts with n 100 are more than 128 texts"),
        ({"best_of": 3}, "best_of differs from n"),
        ({"stop": [""]}, "stop is a list"),
        ({"stop": 3}, "stop is 3"),
        ({"stop": ["a"] * 17}, "stop has 17 texts; 16 are the most"),
        ({"seed": "x"}, 'seed is "x"'),
        ({"logprobs": 99}, "logprobs is 99"),
        ({"logprobs": 1, "echo": True}, "logprobs with echo"),
        ({"stream": 1}, "stream is 1, and true or false is expected"),
        ({"stream_options": 1}, "stream_options is 1"),
        ({"suffix": "x"}, 'suffix is "x", which this server does not do; leave it out'),
        ({"frequency_penalty": 0.5}, "frequency_penalty is 0.5"),
        ({"model": 3}, "model is 3, and a name is expected"),
        ([1], "the body is a list, and a JSON object is expected"),
        (b"{", "the body is not JSON"),
    ],
)
def test_a_mistake_gets_a_sentence_in_the_shape_of_openai(place: Place, body: Any, sentence: str) -> None:
    status, found = place.raw(body)
    assert status == 400
    assert found.keys() == {"error"}
    assert found["error"]["message"].startswith(sentence)
    assert found["error"]["type"] == "invalid_request_error"
    assert found["error"].keys() == {"message", "type", "param", "code"}


def test_another_model_is_not_found(place: Place) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="there is no model 'other' here; this server has 'm'"):
        place.client.completions.create(model="other", prompt="once")
    assert [model.id for model in place.client.models.list()] == ["m"]
    assert place.client.models.retrieve("m").id == "m"


def test_a_model_that_writes_no_text_says_so() -> None:
    models = ServedModels([classifier()])
    with serving(models) as port:
        status, found = Place(models, port).raw({"prompt": "once"})
    assert status == 400
    assert found["error"]["message"].startswith("'m' writes no text")


def test_another_method_is_refused(place: Place) -> None:
    assert place.raw(b"", "GET")[0] == 405


def test_a_client_that_goes_frees_its_slot() -> None:
    generator = Gated(slots=1)
    with place_of(generator) as place:
        stream = place.complete(stream=True, max_tokens=100_000)
        generator.allow(1)
        next(iter(stream))
        assert eventually(lambda: place.load == (1, 0), "text")
        stream.close()
        # A step for each look: the server may see only later that the client has gone.
        assert eventually(lambda: generator.allowed(1) and place.load == (0, 0), "free slot")


def test_a_client_that_goes_while_it_waits_is_forgotten() -> None:
    generator = Gated(slots=1)
    with place_of(generator) as place:
        stream = place.complete(stream=True, max_tokens=100_000)
        with closing(http.client.HTTPConnection("127.0.0.1", place.port, timeout=DEADLINE)) as connection:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "waits"}))
            assert eventually(lambda: place.load == (1, 1), "one that waits")
        assert eventually(lambda: generator.allowed(1) and place.load == (1, 0), "empty queue")
        stream.close()


def test_more_than_may_wait_is_refused_with_a_time() -> None:
    import openai

    generator = Gated(slots=1)
    with place_of(generator, queue=1e-9) as place:
        stream = place.complete(stream=True, max_tokens=1000)
        generator.allow(2)
        events = iter(stream)
        next(events), next(events), next(events)  # the time of a step is known
        with pytest.raises(openai.RateLimitError, match="too many requests wait") as refused:
            place.complete("once")
        assert int(refused.value.response.headers["retry-after"]) >= 1
        stream.close()


def test_a_deadline_ends_a_text_with_what_it_has() -> None:
    with place_of(Bytewise(), deadline=3) as place:
        found = place.complete(max_tokens=10**9)
        assert found.choices[0].finish_reason == "length"
        assert 0 < found.usage.completion_tokens < 10**9


class Breaking(Bytewise):
    """Fails at its third step, or at once for the prompt x."""

    def start(self, slot: int, tokens: Sequence[int]) -> Array:
        if bytes(tokens) == b"x":
            raise ModelError("no x")
        return super().start(slot, tokens)

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> Array:
        if max(positions) == 6:
            raise RuntimeError("broken")
        return super().step(slots, positions, tokens)


def test_a_text_that_fails_is_an_error_before_and_within_a_stream() -> None:
    import openai

    with place_of(Breaking()) as place:
        with pytest.raises(openai.BadRequestError, match="no x"):
            place.streamed("x")
        with pytest.raises(openai.InternalServerError):
            place.complete("once")
        events = iter(place.complete("once", stream=True))
        came = [next(events).choices[0].text for _ in range(3)]
        with pytest.raises(openai.APIError, match="the text is not complete"):
            next(events)
        assert "".join(came).encode() == Bytewise().text(b"once", 3)
        assert eventually(lambda: place.load == (0, 0), "free slots")
