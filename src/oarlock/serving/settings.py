"""The settings of a model server: one JSON file, written by a client and read by the supervisor. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from oarlock.run.typed import VERSION, build, check_version, is_number

NEWEST = "newest"
BEST = "best"
MOST_REPLICAS = 64


@dataclass(frozen=True)
class Settings:
    """Seconds and bytes unless stated otherwise."""

    name: str  # of the model, in URLs
    source: str  # a folder of versions, or a bucket URL
    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    replicas: int = 1
    max_rows: int = 64  # per batch
    queue: float = 1.0  # seconds of work that may wait; more is refused with 429
    deadline: float = 30.0  # for a request without its own
    body_limit: int = 32 << 20
    token_file: str = ""  # the file with the bearer token that clients must send; empty: none
    tls_cert: str = ""
    tls_key: str = ""
    versions: str = NEWEST  # or BEST, or a number
    weights: dict[int, float] = field(default_factory=dict)  # A/B: version -> share of the requests
    predict: str = ""  # the path of a predict.py with pre- and postprocessing
    access_log: bool = False
    every: float = 1.0  # between two looks for a newer version
    grace: float = 20.0  # for requests in flight when a replica stops
    follows: bool = True  # a newer version replaces the one being served
    stopped: int = 0  # the exit code after a stop

    @property
    def scheme(self) -> str:
        """The scheme of this server's URLs."""
        return "https" if self.tls_cert else "http"

    @property
    def is_in_bucket(self) -> bool:
        """Whether the versions are in object storage."""
        return "://" in self.source

    def to_json(self) -> str:
        """The content of the file."""
        data = asdict(self)
        data["weights"] = {str(number): weight for number, weight in self.weights.items()}
        return json.dumps({"version": VERSION, **data}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return the settings in a file. Raises ValueError, which says what is wrong."""
        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        check_version(data)
        found = build(cls, data, weights=_weights(data.get("weights", {})))
        _check(found)
        return found


def _weights(written: Any) -> dict[int, float]:
    if not isinstance(written, Mapping):
        raise ValueError("weights is not a JSON object")
    found: dict[int, float] = {}
    for number, weight in written.items():
        if not str(number).isdecimal() or not is_number(weight) or weight < 0:
            raise ValueError(f"weights has {str(number)[:40]!r}: {str(weight)[:40]!r}")
        found[int(number)] = float(weight)
    if found and not any(found.values()):
        raise ValueError("weights gives no version any requests")
    return found


def _check(found: Settings) -> None:
    if not 0 <= found.port < 65536:
        raise ValueError(f"port is {found.port}")
    if not 1 <= found.replicas <= MOST_REPLICAS:
        raise ValueError(f"replicas is {found.replicas}; 1 to {MOST_REPLICAS} can run")
    for name in ("max_rows", "queue", "deadline", "body_limit", "every"):
        if getattr(found, name) <= 0:
            raise ValueError(f"{name} is {getattr(found, name)}; it must be above 0")
    if found.versions not in (NEWEST, BEST) and not found.versions.isdecimal():
        raise ValueError(f"versions is {found.versions[:40]!r}; it is {NEWEST}, {BEST} or a number")
    if bool(found.tls_cert) != bool(found.tls_key):
        raise ValueError("tls_cert and tls_key belong together")
