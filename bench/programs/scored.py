"""A network of NumPy matrices that saves twice a second, and an evaluator that scores every checkpoint."""

from __future__ import annotations

import numpy as np
from marks import Marks, arguments

import oarlock

_SIZE, _LAYERS = 128, 4
given = arguments()
layers = [np.random.default_rng(number).standard_normal((_SIZE, _SIZE)) * 0.05 for number in range(_LAYERS)]
x = np.random.default_rng(9).standard_normal((128, _SIZE))


def forward() -> np.ndarray:
    y = x
    for layer in layers:
        y = np.tanh(y @ layer)
    return y


state = oarlock.State(layers=layers)
if oarlock.current().role == "evaluator":
    for _ in state.follow():
        for _ in range(20):
            y = forward()
        state.report(spread=float(y.std()))
else:
    marks = Marks(given, 0)
    for _ in zip(state.steps(given.steps, save="500ms", reseed=False), marks.steps(given.steps)):
        y = forward()
        for layer in layers:
            layer += 1e-6 * (x.T @ y)
