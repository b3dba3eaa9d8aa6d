"""What a rank writes down as it trains, one file per generation, for the tests to read: `began 12 3,8,1`
with the examples when a step begins, `made 12 0.25` with the loss when it is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import oarlock


class Diary:
    def __init__(self) -> None:
        task = oarlock.current()
        task.logs.mkdir(parents=True, exist_ok=True)
        name = f"diary-{task.generation}-{task.rank}-of-{task.world}"
        self._file = (task.logs / name).open("a", buffering=1)  # every line is out before the next thing

    def began(self, step: int, examples: Iterable[Any]) -> None:
        self._file.write(f"began {step} {','.join(str(int(one)) for one in examples)}\n")

    def made(self, step: int, loss: Any = float("nan")) -> None:
        self._file.write(f"made {step} {float(loss)!r}\n")
