"""The signature to call a SavedModel by, read from its file without loading the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oarlock.models.model_manifest import Tensor
from oarlock.models.model_versions import SAVED_MODEL
from oarlock.run.quick_dataclass import dataclass
from oarlock.training.exporting.written_model import ExportError, tensor

_USUAL = ("serving_default", "serve")


@dataclass(frozen=True)
class Signature:
    """A function of a SavedModel, with the names and types that clients use."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def read(folder: Path) -> Signature:
    """Return the signature to call: `serving_default`, or the only one, or `serve`. Raises ExportError."""
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        stored = saved_model_pb2.SavedModel.FromString((folder / SAVED_MODEL).read_bytes())
    except OSError as problem:
        raise ExportError(f"{SAVED_MODEL} cannot be read: {problem.strerror}") from None
    except Exception:  # protobuf's own, whose class moves between versions
        raise ExportError(f"{SAVED_MODEL} is damaged") from None
    found = {
        name: one
        for graph in stored.meta_graphs
        for name, one in graph.signature_def.items()
        if not name.startswith("__")
    }
    name = _chosen(list(found))
    inputs, outputs = (_tensors(each) for each in (found[name].inputs, found[name].outputs))
    return Signature(name, inputs, outputs)


def _chosen(names: list[str]) -> str:
    if not names:
        raise ExportError("the SavedModel has no signature: export it with `model.export` or `signatures=`")
    for usual in (_USUAL[0], *([names[0]] if len(names) == 1 else []), _USUAL[1]):
        if usual in names:
            return usual
    raise ExportError(f"the SavedModel has the signatures {', '.join(sorted(names))}: call one {_USUAL[0]}")


def _tensors(described: Any) -> tuple[Tensor, ...]:
    import tensorflow as tf

    found = []
    for name in sorted(described):
        shape = described[name].tensor_shape
        # An unknown rank: whatever its shape, it has a row for each example.
        sizes = (
            (None,) if shape.unknown_rank else tuple(None if d.size < 0 else int(d.size) for d in shape.dim)
        )
        found.append(tensor(name, tf.as_dtype(described[name].dtype).name, sizes))
    return tuple(found)
