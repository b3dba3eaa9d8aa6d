"""A base class for callbacks that Keras 3 and tf_keras both accept, without importing either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable


class Callback:
    """Has every `on_...` method that Keras calls; the ones a subclass does not define do nothing."""

    # tf_keras reads all metrics for every batch unless all callbacks accept tensors.
    _supports_tf_logs = True

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Ignored unless a subclass overrides it."""

    def set_model(self, model: Any) -> None:
        """Ignored unless a subclass overrides it."""

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return True

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def scalars(logs: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that are single numbers, judged by shape: no tensor is read. `report`'s parameter names are
    left out. With parameter servers tf_keras passes what a worker has yet to compute: then there are none."""
    return {
        name: value
        for name, value in (logs.items() if hasattr(logs, "items") else ())
        if name not in ("self", "step", "total") and tuple(getattr(value, "shape", ())) == ()
    }
