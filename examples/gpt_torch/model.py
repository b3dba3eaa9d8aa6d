"""The network: a small GPT that reads bytes and predicts the next one.

Nothing here knows about workers. Save what `exported` returns; `imported` turns it back into a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

GELU_SCALE = 2 * math.sqrt(2 / math.pi)
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Config:
    layers: int = 2
    width: int = 128
    heads: int = 4
    context: int = 64  # how many bytes it looks back
    dropout: float = 0.1
    vocabulary: int = 256  # bytes, so it can read any text and there is no tokenizer to keep

    @property
    def operations(self) -> int:
        """Floating-point operations to train on one byte: forward and twice that backward."""
        matrices = 12 * self.layers * self.width**2 + self.rows * self.width
        return 6 * matrices + 12 * self.layers * self.width * self.context

    @property
    def rows(self) -> int:
        """Rows of the embedding: a GPU multiplies matrices fast if their sizes are multiples of 128."""
        return -(-self.vocabulary // 128) * 128


# Heads of 128 numbers: a GPU computes their attention faster than that of twice as many heads of 64.
SIZES = {
    "tiny": Config(),
    "124m": Config(layers=12, width=768, heads=6, context=1024, dropout=0.0),
    "774m": Config(layers=36, width=1280, heads=10, context=1024, dropout=0.0),
}


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    # No dropout inside, so that the fused kernels can be used, on the CPU too.
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def cross_entropy(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(hidden, weight).float(), targets)


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.rows, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                # What adds to the stream starts smaller, or the stream would grow with every layer.
                adding = 2 * config.layers if name.endswith("out.weight") else 1
                nn.init.normal_(weight, std=(config.width * adding) ** -0.5)

    def forward(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor | None = None,
        attend: Attend = causal,
        loss: Loss = cross_entropy,
    ) -> torch.Tensor:
        """The loss; without targets, the scores of every next byte."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        attends = [attend] * len(self.blocks)
        if targets is None:
            return self.scores(inputs, positions, attends)
        hidden = self.hidden(inputs, positions, attends)
        return loss(hidden.flatten(0, 1), self.tokens.weight, targets.flatten())

    def scores(
        self, inputs: torch.Tensor, positions: torch.Tensor, attends: Sequence[Attend]
    ) -> torch.Tensor:
        """`attends` has a function for each layer that decides which earlier bytes are seen."""
        # The embedding is also the output head: a byte is written with the vector that it is read with.
        found = F.linear(self.hidden(inputs, positions, attends), self.tokens.weight)
        return found[..., : self.config.vocabulary]

    def hidden(
        self, inputs: torch.Tensor, positions: torch.Tensor, attends: Sequence[Attend]
    ) -> torch.Tensor:
        x = self.dropout(self.tokens(inputs) + self.positions(positions))
        for block, attend in zip(self.blocks, attends):
            x = block(x, attend)
        return self.norm(x)


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(config.width), Attention(config)
        self.norm2, self.mlp = nn.LayerNorm(config.width), Mlp(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, attend: Attend) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), attend))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor, attend: Attend) -> torch.Tensor:
        batch, length, width = x.shape
        x = attend(*self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind())
        return self.out(x.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.out = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(gelu(self.up(x)))


def gelu(x: torch.Tensor) -> torch.Tensor:
    """The same function twice: on a GPU, compiled, a sigmoid takes 20 instructions where tanh takes 34."""
    if torch.compiler.is_compiling() and x.is_cuda:
        return x * torch.sigmoid(GELU_SCALE * (x + 0.044715 * x**3))
    return F.gelu(x, approximate="tanh")


def exported(model: GPT) -> dict[str, Any]:
    """What is needed to rebuild the model. If it is sharded, all workers must call this: each has a part."""
    weights = {name: whole(weight).cpu() for name, weight in model.state_dict().items()}
    return {"config": asdict(model.config), "weights": weights}


def whole(weight: torch.Tensor) -> torch.Tensor:
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def imported(stored: dict[str, Any]) -> GPT:
    model = GPT(Config(**stored["config"]))
    model.load_state_dict(stored["weights"])
    return model.eval()
