"""How the model is served: `load` returns what `oarlock serve` asks for the next bytes of many texts at once.

This file, `model.py` and `model.pt` are one version of the model. The server draws the bytes from the scores
that this returns. Nothing is computed twice, because the keys and values of what was read are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from model import GPT, imported

SLOTS = 16  # texts at a time


def load(folder: Path) -> Reader:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)  # for such a small model, more are no faster, and slower on a busy machine
    stored = torch.load(Path(folder) / "model.pt", map_location=device, weights_only=True)
    return Reader(imported(stored).to(device))


class Reader:
    """Reads texts, each in its own slot, and returns the scores of each next byte."""

    def __init__(self, model: GPT, slots: int = SLOTS) -> None:
        config = model.config
        self.slots, self.context, self.vocabulary = slots, config.context, config.vocabulary
        self._model = model
        self._device = model.tokens.weight.device
        shape = (config.layers, slots, config.context, config.heads, config.width // config.heads)
        self._keys, self._values = torch.zeros(2, *shape, device=self._device)

    def encode(self, text: str) -> list[int]:
        return list(text.encode()) or [10]

    def decode(self, token: int) -> bytes:
        return bytes([token])

    def start(self, slot: int, tokens: Sequence[int]) -> np.ndarray:
        """Clear the slot and read these tokens; return the scores of the next byte."""
        return self._read([slot], [list(range(len(tokens)))], [list(tokens)])[0]

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        """Read one more byte in each of these slots; return the scores of the next ones, one row each."""
        return self._read(list(slots), [[place] for place in positions], [[token] for token in tokens])

    @torch.inference_mode()
    def _read(self, *numbers: list[Any]) -> np.ndarray:
        slots, positions, tokens = (torch.tensor(each, device=self._device) for each in numbers)
        length = int(positions.max()) + 1
        # Each byte sees itself and those before it. What a slot holds after them belongs to an older text.
        seen = torch.arange(length, device=self._device) <= positions[:, None, :, None]

        def attend(
            keys: torch.Tensor, values: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
        ) -> torch.Tensor:
            keys[slots[:, None], positions] = k.transpose(1, 2)
            values[slots[:, None], positions] = v.transpose(1, 2)
            k, v = (kept[slots, :length].transpose(1, 2) for kept in (keys, values))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

        layers = [partial(attend, *kept) for kept in zip(self._keys, self._values)]
        return self._model.scores(tokens, positions, layers)[:, -1].float().cpu().numpy()
