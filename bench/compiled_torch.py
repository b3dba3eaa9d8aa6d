"""Would `torch.compile` answer faster than the exported program as it is, on a CPU?

    python bench/compiled_torch.py

Three small models, exported as `oarlock.export` does it (any number of rows), on one thread. The first call
of a compiled model includes the compilation; other numbers of rows may compile again. Rounds are interleaved.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()

import torch
from torch import nn

ROWS = (1, 8, 32)
ROUNDS, CALLS = 5, 200


def models() -> dict[str, nn.Module]:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    return {
        "linear layers": nn.Sequential(
            nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.Linear(128, 10)
        ),
        "convolutions": nn.Sequential(
            *(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 10)),
        ),
        "attention": nn.Sequential(
            *(nn.Unflatten(1, (28, 28)), nn.Linear(28, 128), nn.TransformerEncoder(layer, 2)),
            *(nn.Flatten(), nn.Linear(128 * 28, 10)),
        ),
    }


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, compiler {shutil.which('g++') or shutil.which('clang++')}")
    with torch.inference_mode():
        for name, model in models().items():
            measure(name, model.eval())


def measure(name: str, model: nn.Module) -> None:
    rows = {0: torch.export.Dim("rows")}
    exported = torch.export.export(model, (torch.randn(2, 784),), dynamic_shapes=(rows,)).module()
    began = time.perf_counter()
    compiled: Any = torch.compile(exported, dynamic=True)
    compiled(torch.randn(3, 784))
    first = time.perf_counter() - began
    for count in ROWS:
        compiled(torch.randn(count, 784))
    print(f"{name}: {first:.1f} s to compile, {time.perf_counter() - began:.1f} s for all numbers of rows")
    for count in ROWS:
        inputs = torch.randn(count, 784)
        turns = [(timed(exported, inputs), timed(compiled, inputs)) for _ in range(ROUNDS)]
        plain, faster = (statistics.median(one) for one in zip(*turns, strict=True))
        print(f"  {count:2} rows: {plain:7.0f} us, compiled {faster:7.0f} us, x {plain / faster:.2f}")


def timed(call: Callable[[Any], object], inputs: Any) -> float:
    """The median of many calls, in microseconds."""
    found = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call(inputs)
        found.append(time.perf_counter() - began)
    return 1e6 * statistics.median(found)


if __name__ == "__main__":
    main()
