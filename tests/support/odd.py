"""Odd values and mutated records for tests: whatever a stranger, a later version or a torn disk may leave."""

from __future__ import annotations

import json
import os
import random
from typing import Any

ROUNDS = int(os.environ.get("OARLOCK_ODD_ROUNDS", "1"))  # times a thousand; `make soak` asks for 50
NUMBERS = [0, -1, 1.5, 3, 1e300, -1e300, float("nan"), float("inf"), 10**400, 2**63, 1e11, 5e-324, True]
TEXTS = ["", "worker-0", "\ud800", "\x1b[2J", "../../x", "a" * 20_000, "é", "\0", "started", "succeeded", "9"]


def value(source: random.Random, depth: int = 0) -> Any:
    kind = source.randrange(6 if depth < 3 else 4)
    if kind == 0:
        return None
    if kind == 1:
        return source.choice(NUMBERS)
    if kind in (2, 3):
        return source.choice(TEXTS)
    many = source.randrange(4)
    if kind == 4:
        return [value(source, depth + 1) for _ in range(many)]
    return {source.choice(TEXTS): value(source, depth + 1) for _ in range(many)}


def change(source: random.Random, data: Any) -> Any:
    """One place of a JSON value, deep or not: another value, or gone, or beside something unknown."""
    if isinstance(data, dict) and data and source.random() < 0.9:
        field = source.choice(list(data))
        how = source.randrange(8)
        if how == 0:
            return {key: item for key, item in data.items() if key != field}
        if how == 1:
            return {**data, source.choice(TEXTS) or "new": value(source)}
        return {**data, field: change(source, data[field])}
    if isinstance(data, list) and data and source.random() < 0.9:
        at = source.randrange(len(data))
        return [*data[:at], change(source, data[at]), *data[at + 1 :]]
    return value(source)


def tear(source: random.Random, text: bytes) -> bytes:
    """Bytes lost, doubled or overwritten."""
    start, end = sorted(source.randrange(len(text) + 1) for _ in range(2))
    return source.choice(
        [
            text[:start],
            text[:start] + text[end:],
            text[:end] + text[start:],
            text[:start] + source.randbytes(min(9, end - start)) + text[end:],
            text[:start] + b"[" * 100_000 + text[end:],
            b"\0" * len(text),
            b"",
        ]
    )


def mutated(source: random.Random, text: str) -> bytes:
    """A JSON document as somebody else may have written it."""
    if source.random() < 0.3:
        return tear(source, text.encode())
    data = json.loads(text)
    for _ in range(source.randrange(1, 4)):
        data = change(source, data)
    return json.dumps(data).encode()
