"""The answers of `GET /v1/models...`: TensorFlow Serving's status and metadata, and OpenAI's list of models.

`GET /v1/models/M` is an address in both, so its answer has the keys of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oarlock.models.model_manifest import Tensor
from oarlock.serving.dialects.exchange import Answer, Call, to_json
from oarlock.serving.dialects.tensorflow_predict import SIGNATURE
from oarlock.serving.served import Models, Served

# TensorFlow uses NumPy's names, except for these.
_TYPES = {"float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE"}


async def status(call: Call) -> Answer:
    """`GET /v1/models/M` and `GET /v1/models/M/versions/N`."""
    found = call.models.all() if call.number is None else [call.pick()]
    states = {"model_version_status": [_state(one, call.models) for one in found]}
    return to_json(states if call.number is not None else {**states, **_listed(call.models)})


async def metadata(call: Call) -> Answer:
    """`GET /v1/models/M/metadata`."""
    served = call.pick()
    signature = {
        "inputs": _tensors(served.manifest.inputs),
        "outputs": _tensors(served.manifest.outputs),
        "method_name": "tensorflow/serving/predict",
    }
    return to_json(
        {
            "model_spec": {
                "name": call.models.name,
                "signature_name": "",
                "version": str(served.number),
            },
            "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
        }
    )


async def listed(call: Call) -> Answer:
    """`GET /v1/models`."""
    return to_json({"object": "list", "data": [_listed(call.models)]})


def _state(served: Served, models: Models) -> dict[str, Any]:
    return {
        "version": str(served.number),
        "state": "AVAILABLE" if models.is_ready else "LOADING",
        "status": {"error_code": "OK", "error_message": ""},
    }


def _listed(models: Models) -> dict[str, Any]:
    return {"id": models.name, "object": "model", "created": 0, "owned_by": "oarlock"}


def _tensors(tensors: Iterable[Tensor]) -> dict[str, Any]:
    return {one.name: _tensor(one) for one in tensors}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in tensor.shape]
    return {
        "dtype": _TYPES.get(tensor.dtype, f"DT_{tensor.dtype.upper()}"),
        "tensor_shape": {"dim": sizes, "unknown_rank": False},
        "name": tensor.name,
    }
