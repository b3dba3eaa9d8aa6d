"""What a client asks of `/v1/completions`, read and checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oarlock.serving.dialects.exchange import Refused
from oarlock.serving.dialects.json_input import said
from oarlock.serving.generation.sampling import Sampling

_MOST_TEXTS = 128  # per request
_MOST_STOPS = 16
_MOST_LIKELIEST = 20
_WHOLE = 2**63
# Options that would change the text but are not implemented: only the value that changes nothing is accepted.
_NOTHING: dict[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
}


@dataclass(frozen=True)
class CompletionRequest:
    """A checked body."""

    model: str  # empty: the served one
    prompts: tuple[str | tuple[int, ...], ...]  # texts, or tokens
    sampling: Sampling
    copies: int
    has_echo: bool  # the text begins with its prompt
    is_streamed: bool
    has_usage: bool  # for a stream: it ends with the number of tokens


def read(data: Mapping[str, Any]) -> CompletionRequest:
    """Return what the client asks for. Raises Refused."""
    for name, values in _NOTHING.items():
        if data.get(name) not in values:
            raise Refused(400, f"{name} is {said(data[name])}, which this server does not do; leave it out")
    prompts = _prompts(data.get("prompt"))
    copies = _integer(data, "n", 1, 1, _MOST_TEXTS)
    if len(prompts) * copies > _MOST_TEXTS:
        raise Refused(400, f"{len(prompts)} prompts with n {copies} are more than {_MOST_TEXTS} texts")
    if _integer(data, "best_of", copies, 1, _MOST_TEXTS) != copies:
        raise Refused(400, "best_of differs from n, which this server does not do; leave it out")
    has_echo = _flag(data, "echo")
    sampling = _sampling(data)
    if has_echo and sampling.logprobs is not None:
        raise Refused(400, "logprobs with echo would be those of the prompt, which this server does not have")
    model = data.get("model")
    if not isinstance(model, (str, type(None))):
        raise Refused(400, f"model is {said(model)}, and a name is expected")
    options = data.get("stream_options") or {}
    if not isinstance(options, dict):
        raise Refused(400, f"stream_options is {said(options)}, and an object is expected")
    return CompletionRequest(
        model=model or "",
        prompts=prompts,
        sampling=sampling,
        copies=copies,
        has_echo=has_echo,
        is_streamed=_flag(data, "stream"),
        has_usage=_flag(options, "include_usage"),
    )


def _sampling(data: Mapping[str, Any]) -> Sampling:
    logprobs = data.get("logprobs")
    return Sampling(
        max_tokens=_integer(data, "max_tokens", 16, 0, _WHOLE),
        temperature=_number(data, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(data, "top_p", 1.0, 0.0, 1.0),
        top_k=_integer(data, "top_k", 0, 0, _WHOLE),
        seed=None if data.get("seed") is None else _integer(data, "seed", 0, -_WHOLE, _WHOLE) % (1 << 64),
        stop=_stops(data.get("stop")),
        logprobs=None if logprobs in (None, False) else _integer(data, "logprobs", 0, 0, _MOST_LIKELIEST),
    )


def _prompts(value: Any) -> tuple[str | tuple[int, ...], ...]:
    if value is None:
        return ("",)
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if all(isinstance(one, str) for one in value):
            return tuple(value)
        if _are_tokens(value):
            return (tuple(value),)
        if all(isinstance(one, list) and one and _are_tokens(one) for one in value):
            return tuple(tuple(one) for one in value)
    raise Refused(400, f"prompt is {said(value)}; send a text, a list of texts, or tokens as numbers")


def _are_tokens(values: Sequence[Any]) -> bool:
    return all(type(one) is int and one >= 0 for one in values)


def _stops(value: Any) -> tuple[str, ...]:
    found = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise Refused(400, f"stop is {said(value)}; send a text, or a list of texts")
    if len(found) > _MOST_STOPS:
        raise Refused(400, f"stop has {len(found)} texts; {_MOST_STOPS} are the most")
    return tuple(found)


def _flag(data: Mapping[str, Any], name: str) -> bool:
    value = data.get(name)
    if value is not None and type(value) is not bool:
        raise Refused(400, f"{name} is {said(value)}, and true or false is expected")
    return bool(value)


def _integer(data: Mapping[str, Any], name: str, usual: int, least: int, most: int) -> int:
    value = data.get(name)
    if value is None:
        return usual
    if type(value) is not int or not least <= value <= most:
        raise Refused(400, f"{name} is {said(value)}, and a whole number {_range(least, most)} is expected")
    return value


def _number(data: Mapping[str, Any], name: str, usual: float, least: float, most: float) -> float:
    value = data.get(name)
    if value is None:
        return usual
    if type(value) not in (int, float) or not least <= value <= most:
        raise Refused(400, f"{name} is {said(value)}, and a number {_range(least, most)} is expected")
    return float(value)


def _range(least: float, most: float) -> str:
    return f"of at least {least}" if most == _WHOLE else f"from {least} to {most}"
