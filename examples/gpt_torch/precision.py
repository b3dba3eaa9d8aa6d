"""Compute in 16 bits, and keep the weights in 32.

Casting weights on every use costs a GPU time in every step, and weights stored in 16 bits lose small
updates. So there are two models: one is saved and optimized, and its bfloat16 copy computes.
"""

from __future__ import annotations

import copy

import torch


class HalfPrecision:
    def __init__(self, weights: torch.nn.Module) -> None:
        self._weights = list(weights.parameters())
        self._copies = [torch.nn.Parameter(weight.detach().to(torch.bfloat16)) for weight in self._weights]
        taken = {id(weight): copied for weight, copied in zip(self._weights, self._copies)}
        self.model = copy.deepcopy(weights, taken)  # with these in place of 32-bit copies

    def take_gradients(self) -> None:
        """Copy the gradients from the copy, which computed them, for the optimizer."""
        for weight in self._weights:
            weight.grad = torch.empty_like(weight) if weight.grad is None else weight.grad
        torch._foreach_copy_([weight.grad for weight in self._weights], [one.grad for one in self._copies])
        for one in self._copies:
            one.grad = None

    @torch.no_grad()
    def take_weights(self) -> None:
        """Copy the weights that the optimizer changed."""
        torch._foreach_copy_(self._copies, self._weights)
