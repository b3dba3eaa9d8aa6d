"""A picture of attention, as a PNG file: a column for each piece of the sentence, a row for each piece of its
translation; the more a row's piece looks at a column's, the darker the cell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib.figure
import numpy as np
import pieces

CELL = 0.35  # inches


def write_attention(path: Path, read: np.ndarray, written: np.ndarray, attention: np.ndarray) -> None:
    """`read` and `written` are pieces, as bytes, padded after their ends; `attention` has their shape."""
    columns, rows = (labels(found) for found in (read, written))
    size = (2 + CELL * len(columns), 1.5 + CELL * len(rows))
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    shares = attention[: len(rows), : len(columns)]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=max(0.5, shares.max()), aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, format="png", dpi=100)
    partial.rename(path)


def labels(found: Iterable[bytes]) -> list[str]:
    """Pieces up to the end. Those that continue a word start with a dash."""
    texts = [piece.decode() for piece in found]
    if pieces.SPECIAL[pieces.END] in texts:
        texts = texts[: texts.index(pieces.SPECIAL[pieces.END]) + 1]
    return [text.lstrip(pieces.GAP) if text[0] in (pieces.GAP, "[") else f"-{text}" for text in texts]
