"""A model server as a client sees it: what the model takes, and its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oarlock.cli.predicting.given_examples import Example, ModelInput
from oarlock.errors import OarlockError

if TYPE_CHECKING:
    import httpx2

_PATIENCE = 300.0  # seconds for one batch
_ENDING = 503  # the status of a server that stops
# The Open Inference Protocol's names of types.
_TYPES = {"BYTES": "string", "BOOL": "bool", **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)}}


class Unanswered(OarlockError):
    """The server was lost, or is about to end: another one may answer."""


@dataclass(frozen=True)
class Access:
    """How to reach a server."""

    url: str
    model: str = ""  # its name; empty: the only one
    token: str = ""
    certificate: str = ""  # the file with the certificate to trust
    is_own: bool = False  # it serves this client alone: one version, the same for all examples


@dataclass(frozen=True)
class Described:
    """What a server says about its model."""

    name: str
    version: str
    kind: str
    inputs: Sequence[ModelInput]
    labels: Sequence[str] = field(default_factory=list)


class ModelClient:
    """A connection to a model server. Every method raises OarlockError."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection = _connection(access)

    def renew(self) -> None:
        """Connect again for the next question."""
        self.close()
        self._connection = _connection(self._access)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def describe(self) -> Described:
        """Ask what the model takes."""
        name = self._access.model or self._only()
        about = self._ask("GET", f"/v2/models/{name}")
        extra = about.get("parameters") or {}
        return Described(
            name=name,
            version=str(extra.get("version", "")),
            kind=str(extra.get("kind", "tensor")),
            inputs=[_input(one) for one in about["inputs"]],
            labels=list(extra.get("labels") or []),
        )

    def predict(self, model: Described, examples: Sequence[Example]) -> list[dict[str, Any]]:
        """Return the outputs of each example, by name."""
        rows = [dict(one.values) for one in examples]
        body = {"instances": rows}
        version = f"/versions/{model.version}" if self._access.is_own else ""
        answer = self._ask("POST", f"/v1/models/{model.name}{version}:predict", body)
        found = answer.get("predictions")
        if not isinstance(found, list) or len(found) != len(rows):
            raise OarlockError(f"{self._access.url} did not give a prediction for each example")
        return [one if isinstance(one, dict) else {"output": one} for one in found]

    def complete(self, model: Described, prompt: str, options: Mapping[str, Any]) -> str:
        """Return how a text model continues the prompt."""
        body = {"model": model.name, "prompt": prompt, **options}
        return str(self._ask("POST", "/v1/completions", body)["choices"][0]["text"])

    def _only(self) -> str:
        names = self._ask("GET", "/v2/models").get("models")
        if not isinstance(names, list) or len(names) != 1:
            raise OarlockError(f"{self._access.url} serves several models; name one: URL/v1/models/NAME")
        return str(names[0])

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        import httpx2

        try:
            answer = self._connection.request(method, path, json=body)
            found = json.loads(answer.content)
        except httpx2.HTTPError as problem:
            raise Unanswered(f"{self._access.url} does not answer: {problem}") from None
        except ValueError:
            raise OarlockError(f"{self._access.url} is not a model server: its answer is not JSON") from None
        if answer.status_code != 200:
            kind = Unanswered if answer.status_code == _ENDING else OarlockError
            raise kind(f"{_why(found) or f'status {answer.status_code}'}")
        if not isinstance(found, dict):
            raise OarlockError(f"{self._access.url} is not a model server")
        return found


@contextmanager
def connected(access: Access) -> Iterator[ModelClient]:
    """Have a connection inside a `with` block."""
    client = ModelClient(access)
    try:
        yield client
    finally:
        client.close()


def _connection(access: Access) -> httpx2.Client:
    import ssl

    import httpx2

    headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
    verify = ssl.create_default_context(cafile=access.certificate or None)
    return httpx2.Client(base_url=access.url, headers=headers, timeout=_PATIENCE, verify=verify)


def _input(described: Mapping[str, Any]) -> ModelInput:
    kind = str(described["datatype"])
    sizes = [None if size in (-1, None) else int(size) for size in described["shape"]]
    return ModelInput(str(described["name"]), _TYPES.get(kind, kind.lower()), tuple(sizes[1:]))


def _why(answer: Any) -> str:
    """The message of an error, in any dialect's format."""
    problem = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(problem, dict):
        problem = problem.get("message")
    return str(problem) if problem else ""
