"""The server's description at `/openapi.json`, with the inputs and outputs of this model. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oarlock import __version__
from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.dialects.exchange import Answer, Call, to_json
from oarlock.serving.dialects.open_inference import DATATYPES

_ERRORS = {
    400: "The request does not fit the model; the sentence says what is expected.",
    401: "A token is needed.",
    404: "No such model or version.",
    413: "The body is too large.",
    429: "Too much work waits; Retry-After says when to try again.",
    504: "The model did not answer in time.",
}
_BOUNDS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
_Schema = dict[str, Any]


async def description(call: Call) -> Answer:
    """`GET /openapi.json`."""
    return to_json(document(call.models.name, call.pick().manifest))


def document(name: str, manifest: Manifest) -> _Schema:
    """Return the OpenAPI document of a server for this model."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": name,
            "version": __version__,
            "description": f"The model {name}, served by Oarlock.",
        },
        "paths": {
            **_tensorflow(f"/v1/models/{name}", manifest),
            **_open_inference(f"/v2/models/{name}", manifest),
            **_server(),
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _tensorflow(model: str, manifest: Manifest) -> _Schema:
    examples = _object(
        {"examples": _list(_row(manifest.inputs)), "context": {"type": "object"}}, ["examples"]
    )
    answer = _object({"predictions": {}, "outputs": {}}, [])
    found = {
        "": {"get": _operation("The state of each version")},
        "/metadata": {"get": _operation("Inputs and outputs, as TensorFlow Serving has them")},
        ":predict": {"post": _operation("Ask the model, by rows or by columns", predict(manifest), answer)},
        ":classify": {"post": _operation("Labels and scores, best first", examples)},
        ":regress": {"post": _operation("One value for each example", examples)},
    }
    return _with_versions(model, found)


def predict(manifest: Manifest) -> _Schema:
    """The body of `:predict`."""
    rows: list[_Schema] = [{**_list(_row(manifest.inputs)), "minItems": 1}]
    columns: list[_Schema] = [_object({one.name: tensor(one) for one in manifest.inputs})]
    if len(manifest.inputs) == 1:
        rows.append(tensor(manifest.inputs[0]))
        columns.append(tensor(manifest.inputs[0]))
    signature: _Schema = {"const": "serving_default"}
    return {
        "oneOf": [
            _object({"instances": {"anyOf": rows}, "signature_name": signature}, ["instances"]),
            _object({"inputs": {"anyOf": columns}, "signature_name": signature}, ["inputs"]),
        ]
    }


def _open_inference(model: str, manifest: Manifest) -> _Schema:
    inputs = [
        _object(
            {
                "name": {"const": one.name},
                "datatype": {"const": DATATYPES[one.dtype]},
                "shape": _shape(one),
                "data": _list({}),
                "parameters": {"type": "object"},
            },
            ["name", "datatype", "shape"],
        )
        for one in manifest.inputs
    ]
    output = _object(
        {"name": {"enum": [one.name for one in manifest.outputs]}, "parameters": {"type": "object"}}, ["name"]
    )
    request = _object(
        {
            "id": {"type": "string"},
            "inputs": {**_list({"anyOf": inputs} if inputs else {}), "minItems": len(inputs)},
            "outputs": _list(output),
            "parameters": {"type": "object"},
        },
        ["inputs"],
    )
    found = {
        "": {"get": _operation("Inputs, outputs, labels and versions")},
        "/ready": {"get": _operation("Whether the model answers")},
        "/infer": {"post": _operation("Ask the model, in JSON or with binary tensors", request)},
    }
    return _with_versions(model, found)


def _server() -> _Schema:
    completion = _object(
        {
            "prompt": {"type": "string"},
            "max_tokens": {"type": "integer"},
            "temperature": {"type": "number"},
            "stream": {"type": "boolean"},
        },
        ["prompt"],
    )
    completion["additionalProperties"] = True  # OpenAI's other settings
    return {
        "/v1/models": {"get": _operation("The models, as OpenAI lists them")},
        "/v1/completions": {"post": _operation("Continue a text, if the model writes text", completion)},
        "/v2": {"get": _operation("Name, version and extensions of the server")},
        "/v2/models": {"get": _operation("The models")},
        "/v2/repository/index": {"post": _operation("The models, as Triton lists them")},
        "/v2/health/live": {"get": _operation("Whether the process lives")},
        "/v2/health/ready": {"get": _operation("Whether it answers")},
        "/healthz": {"get": _operation("Whether the process lives")},
        "/readyz": {"get": _operation("Whether it answers: 503 while it loads or drains")},
        "/metrics": {"get": _operation("What all replicas have counted, for Prometheus")},
        "/openapi.json": {"get": _operation("This document")},
        "/": {"get": _operation("A page to try the model")},
    }


def _with_versions(model: str, found: dict[str, _Schema]) -> _Schema:
    """Each address with and without a version."""
    version = {"name": "version", "in": "path", "required": True, "schema": {"type": "integer"}}
    plain = {model + rest: methods for rest, methods in found.items()}
    return plain | {
        f"{model}/versions/{{version}}{rest}": {**methods, "parameters": [version]}
        for rest, methods in found.items()
    }


def _operation(summary: str, body: _Schema | None = None, answer: _Schema | None = None) -> _Schema:
    good: _Schema = {"description": "The answer."}
    if answer is not None:
        good["content"] = {"application/json": {"schema": answer}}
    found: _Schema = {"summary": summary, "responses": {"200": good}}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        found["responses"].update({str(code): {"description": text} for code, text in _ERRORS.items()})
    return found


def tensor(one: Tensor) -> _Schema:
    """Nested lists of the shape of a tensor."""
    return _nested(one.shape, _value(one.dtype))


def _row(tensors: Iterable[Tensor]) -> _Schema:
    return _object({one.name: _nested(one.shape[1:], _value(one.dtype)) for one in tensors})


def _nested(shape: Sequence[int | None], value: _Schema) -> _Schema:
    for size in reversed(shape):
        bounds = {"minItems": 1} if size is None else {"minItems": size, "maxItems": size}
        value = {"type": "array", "items": value, **bounds}
    return value


def _value(dtype: str) -> _Schema:
    if dtype == "string":
        return {"anyOf": [{"type": "string"}, _object({"b64": {"type": "string"}})]}
    if dtype == "bool":
        return {"type": "boolean"}
    if dtype.startswith("float"):
        return {"type": "number"}
    least, most = _BOUNDS[dtype]
    return {"type": "integer", "minimum": least, "maximum": most}


def _shape(one: Tensor) -> _Schema:
    sizes = [{"type": "integer", "minimum": 1} if size is None else {"const": size} for size in one.shape]
    return {"type": "array", "prefixItems": sizes, "minItems": len(sizes), "maxItems": len(sizes)}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _object(properties: dict[str, _Schema], required: list[str] | None = None) -> _Schema:
    needed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
