"""What the Open Inference Protocol reports about the server and its model: health, metadata, lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oarlock import __version__
from oarlock.models.model_manifest import Tensor
from oarlock.serving.dialects.exchange import Answer, Call, to_json
from oarlock.serving.dialects.open_inference import DATATYPES
from oarlock.serving.served import Served

_PLATFORMS = {
    "saved_model": "tensorflow_savedmodel",
    "torch_export": "pytorch_export",
    "jax_export": "jax_export",
    "onnx": "onnx_onnxv1",
    "python": "python",
}


async def server(call: Call) -> Answer:
    """`GET /v2`."""
    return to_json(
        {"name": "oarlock", "version": __version__, "extensions": ["binary_tensor_data", "model_repository"]}
    )


async def live(call: Call) -> Answer:
    """`GET /v2/health/live`."""
    return to_json({"live": True})


async def ready(call: Call) -> Answer:
    """`GET /v2/health/ready`."""
    is_ready = call.models.is_ready
    return to_json({"live": True, "ready": is_ready}, 200 if is_ready else 503)


async def model_ready(call: Call) -> Answer:
    """`GET /v2/models/M/ready`."""
    call.pick()
    is_ready = call.models.is_ready
    return to_json({"name": call.models.name, "ready": is_ready}, 200 if is_ready else 503)


async def model(call: Call) -> Answer:
    """`GET /v2/models/M`. Anything the protocol has no field for is in `parameters`."""
    served = call.pick()
    manifest = served.manifest
    return to_json(
        {
            "name": call.models.name,
            "versions": [str(one.number) for one in call.models.all()],
            "platform": _PLATFORMS[manifest.format],
            "inputs": _tensors(manifest.inputs),
            "outputs": _tensors(manifest.outputs),
            "parameters": _about(served),
        }
    )


async def listed(call: Call) -> Answer:
    """`GET /v2/models`."""
    return to_json({"models": [call.models.name]})


async def index(call: Call) -> Answer:
    """`POST /v2/repository/index`: Triton's list of models."""
    state = "READY" if call.models.is_ready else "LOADING"
    name = call.models.name
    found = [{"name": name, "version": str(one.number), "state": state} for one in call.models.all()]
    return to_json([{**one, "reason": ""} for one in found])


def _about(served: Served) -> dict[str, Any]:
    manifest = served.manifest
    return {
        "version": str(served.number),
        "kind": manifest.kind,
        "labels": list(manifest.labels),
        "form": served.form,
        "run": manifest.run,
        "step": manifest.step,
        "scores": manifest.scores,
    }


def _tensors(tensors: Iterable[Tensor]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "datatype": DATATYPES[one.dtype],
            "shape": [-1 if size is None else size for size in one.shape],
        }
        for one in tensors
    ]
