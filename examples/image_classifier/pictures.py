"""A picture of predictions, as a PNG file, with nothing but zlib.

Every tile shows an image and, beside it, a bar for each class, as long as its probability: green for the
right class, red for a wrong one that the model prefers, gray for the others.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

COLUMNS, BAR, GAP = 6, 48, 6
RIGHT, WRONG, OTHER, PAPER = (40, 160, 70), (210, 50, 40), (150, 150, 150), (255, 255, 255)


def write_predictions(path: Path, images: np.ndarray, labels: np.ndarray, probabilities: np.ndarray) -> None:
    tiles = [tile(*each) for each in zip(images, labels, probabilities)]
    tiles += [np.full_like(tiles[0], 255)] * (-len(tiles) % COLUMNS)
    rows = [np.concatenate(tiles[at : at + COLUMNS], axis=1) for at in range(0, len(tiles), COLUMNS)]
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(png(np.concatenate(rows)))
    partial.rename(path)


def tile(image: np.ndarray, label: int, probabilities: np.ndarray) -> np.ndarray:
    scale = max(1, 64 // image.shape[0])
    enlarged = np.repeat(np.repeat(image, scale, axis=0), scale, axis=1)
    if enlarged.shape[-1] == 1:
        enlarged = np.repeat(enlarged, 3, axis=2)
    height = max(len(enlarged), 5 * len(probabilities))
    width = enlarged.shape[1]
    drawn = np.full((height + GAP, width + BAR + 2 * GAP, 3), PAPER, "uint8")
    drawn[: len(enlarged), :width] = enlarged
    thick = height // len(probabilities)
    for kind, probability in enumerate(probabilities):
        color = RIGHT if kind == label else WRONG if kind == np.argmax(probabilities) else OTHER
        length = max(1, round(float(probability) * BAR))
        drawn[kind * thick : (kind + 1) * thick - 1, width + GAP : width + GAP + length] = color
    return drawn


def png(pixels: np.ndarray) -> bytes:
    """The bytes of a PNG file: height, width, three colors."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in np.ascontiguousarray(pixels))
    body = chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body
