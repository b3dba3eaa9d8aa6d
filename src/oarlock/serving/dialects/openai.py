"""OpenAI's `/v1/completions`, whole or as a stream of events."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import orjson

from oarlock.serving.dialects import openai_request
from oarlock.serving.dialects.checked_inputs import shortened
from oarlock.serving.dialects.exchange import Answer, Call, Dialect, Refused
from oarlock.serving.dialects.json_input import Document
from oarlock.serving.dialects.openai_request import CompletionRequest
from oarlock.serving.dialects.openai_texts import Texts

if TYPE_CHECKING:
    from oarlock.serving.generation.completion import Piece
    from oarlock.serving.generation.text_model import RequestTexts, TextModel

_EVENTS = b"text/event-stream; charset=utf-8"
_DONE = b"data: [DONE]\n\n"
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


async def completions(call: Call) -> Answer:
    """`POST /v1/completions`."""
    request = openai_request.read(Document(call.body).data)
    name = call.models.name
    if request.model not in ("", name):
        raise Refused(404, f"there is no model {shortened(request.model)} here; this server has {name!r}")
    served = call.pick()
    if served.text is None:
        raise Refused(400, f"{name!r} writes no text; /openapi.json lists what it is asked for")
    prompts = [_tokens(served.text, prompt) for prompt in request.prompts]
    about = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": name,
        "system_fingerprint": f"version-{served.number}",
    }
    texts = Texts(about, _echoes(served.text, request), sum(map(len, prompts)), has_usage=request.has_usage)
    stream = served.text.open(prompts, request.sampling, request.copies)
    try:
        # The first piece decides between an answer and a refusal: a status cannot be changed later.
        pieces = await stream.pieces()
        if request.is_streamed:
            return Answer(b"", content_type=_EVENTS, parts=Events(stream, texts, pieces))
        while pieces:
            for index, piece in pieces:
                texts.add(index, piece)
            pieces = await stream.pieces()
    except BaseException:
        stream.close()
        raise
    return Answer(orjson.dumps(texts.whole()))


def error(refused: Refused) -> dict[str, Any]:
    """The error in OpenAI's format."""
    kind = "server_error" if refused.status >= 500 else _KINDS.get(refused.status, "invalid_request_error")
    code = _CODES.get(refused.status)
    return {"error": {"message": refused.text, "type": kind, "param": None, "code": code}}


OPENAI = Dialect("openai", error)


class Events:
    """The events of a stream, sent together if there are several. `aclose` frees the slots of its texts."""

    def __init__(self, stream: RequestTexts, texts: Texts, first: list[tuple[int, Piece]]) -> None:
        self._stream = stream
        self._texts = texts
        self._pieces: list[tuple[int, Piece]] | None = first  # None: the available ones were sent
        self._is_over = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> bytes:
        """Return what is new, and `[DONE]` after the last. A text that fails later ends with an error."""
        events: list[bytes] = []
        if self._is_over:
            raise StopAsyncIteration
        while not events:
            try:
                pieces = await self._stream.pieces() if self._pieces is None else self._pieces
            except Exception as problem:
                self._is_over = True
                return _event(error(Refused(500, f"the text is not complete: {problem}")))
            self._pieces = None
            if not pieces:
                self._is_over = True
                return b"".join([*map(_event, self._texts.last()), _DONE])
            said = (self._texts.add(index, piece) for index, piece in pieces)
            events = [_event(one) for one in said if one is not None]
        return b"".join(events)

    async def aclose(self) -> None:
        """End the stream: the client has everything, or is gone."""
        self._is_over = True
        self._stream.close()


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def _tokens(model: TextModel, prompt: str | tuple[int, ...]) -> list[int]:
    if isinstance(prompt, str):
        return list(model.generator.encode(prompt))
    size = model.generator.vocabulary
    if max(prompt) >= size:
        raise Refused(400, f"prompt has the token {max(prompt)}; this model's are 0 to {size - 1}")
    return list(prompt)


def _echoes(model: TextModel, request: CompletionRequest) -> list[str]:
    if not request.has_echo:
        return [""] * (len(request.prompts) * request.copies)
    return [_text(model, prompt) for prompt in request.prompts for _ in range(request.copies)]


def _text(model: TextModel, prompt: str | tuple[int, ...]) -> str:
    if isinstance(prompt, str):
        return prompt
    return b"".join(map(model.generator.decode, prompt)).decode(errors="replace")
