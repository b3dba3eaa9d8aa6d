"""Runs of gpt_torch and gpt_jax on a GPU for the benches: bare and by `oarlock run`, and what they print."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from arena import BIN, Arena, MeasurementError

EXAMPLES = Path(__file__).parents[1] / "examples"
MANY_RESTARTS = ("--set", "limits.restarts=1000")


def words(
    side: str,
    *args: str,
    options: Sequence[str] = MANY_RESTARTS,
    example: str = "gpt_torch",
    program: Path | None = None,
) -> list[str | Path]:
    """The command that trains an example, or another program, with one worker, bare or by `oarlock run`."""
    program = program or EXAMPLES / example / "train.py"
    if side == "bare":
        return [sys.executable, "-u", program, *args]
    return [BIN / "oarlock", "run", "-n", "1", *options, program, *args]


def lines(
    place: Arena, words: Sequence[str | Path], name: str, **variables: str
) -> Iterator[tuple[float, str]]:
    """What it prints, and when."""
    folder = place.folder / name
    data = str(place.folder / "data")
    env = {**place.env, "PYTHONUNBUFFERED": "1", "DATA_DIR": data, **variables}
    if words[0] == sys.executable:  # Oarlock gives its runs folders of their own
        env |= {"CHECKPOINT_DIR": str(folder / "checkpoints"), "MODEL_DIR": str(folder / "model")}
        (folder / "model").mkdir(parents=True)
    process = subprocess.Popen(
        [str(word) for word in words],
        env=env,
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    place.processes.append(process)  # type: ignore[arg-type]
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        yield time.time(), line
    if process.wait() != 0:
        raise MeasurementError("".join(said[-20:]))


def tokens(place: Arena) -> str:
    """A file with random ones."""
    import numpy as np

    path = place.folder / "tokens.bin"
    if not path.exists():
        np.random.default_rng(0).integers(0, 50_257, 20_000_000, dtype=np.uint16).tofile(path)
    return str(path)
