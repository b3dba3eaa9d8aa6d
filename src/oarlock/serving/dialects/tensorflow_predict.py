"""TensorFlow Serving's REST: `:predict` by rows (`instances`) and columns (`inputs`), and `:classify` and
`:regress` for examples.

NaN and Infinity are numbers in both directions, as TensorFlow Serving documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oarlock.models.model_manifest import Manifest
from oarlock.serving.dialects import checked_inputs, json_output
from oarlock.serving.dialects.exchange import Answer, Call, Refused
from oarlock.serving.dialects.json_input import Document, said

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

SIGNATURE = "serving_default"
_FORMS = 'send {"instances": [...]} (rows) or {"inputs": {...}} (columns)'


async def predict(call: Call) -> Answer:
    """`POST /v1/models/M:predict`."""
    served = call.pick()
    document = Document(call.body, takes_tokens=True)
    data = document.data
    _check_signature(data)
    is_by_row = "instances" in data
    if is_by_row == ("inputs" in data):
        which = "both instances and inputs" if is_by_row else "neither instances nor inputs"
        raise Refused(400, f"the body has {which}; {_FORMS}")
    manifest = served.manifest
    if is_by_row:
        arrays = _from_rows(document, data["instances"], manifest, "instances")
    else:
        arrays = _from_columns(document, data["inputs"], manifest)
    outputs = await served.predict(arrays, None)
    return Answer(_predictions(outputs) if is_by_row else _outputs(outputs))


async def classify(call: Call) -> Answer:
    """`POST /v1/models/M:classify`: labels and scores of each example, best first."""
    served = call.pick()
    scores = await _scores_of_examples(call)
    labels = served.manifest.labels
    if scores.ndim != 2 or scores.dtype.kind != "f":
        raise Refused(400, "this model does not score classes; use :predict")
    if labels and len(labels) != scores.shape[1]:
        raise Refused(400, f"this model has {len(labels)} labels and {scores.shape[1]} scores; use :predict")
    names = labels or ("",) * scores.shape[1]
    rows = []
    for row in scores:
        best = row.argsort(kind="stable")[::-1]
        rows.append([[names[place], row[place].item()] for place in best])
    return Answer(_results(rows))


async def regress(call: Call) -> Answer:
    """`POST /v1/models/M:regress`: one value for each example."""
    values = await _scores_of_examples(call)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise Refused(400, "this model gives more than one value for an example; use :predict")
    return Answer(b'{"results": ' + json_output.with_tokens(values) + b"}")


async def _scores_of_examples(call: Call) -> Array:
    served = call.served or call.pick()
    document = Document(call.body, takes_tokens=True)
    _check_signature(document.data)
    examples, context = document.data.get("examples"), document.data.get("context", {})
    if type(examples) is not list or not all(type(one) is dict for one in examples):
        raise Refused(400, 'send {"examples": [{"name": value, ...}, ...]}')
    if type(context) is not dict:
        raise Refused(400, f"context is {said(context)}, and an object is expected")
    for one in examples:
        if context.keys() & one.keys():
            twice = min(context.keys() & one.keys())
            raise Refused(400, f"{checked_inputs.shortened(twice)} is in context and in an example")
    rows = [{**context, **one} for one in examples]
    arrays = _from_rows(document, rows, served.manifest, "examples")
    outputs = await served.predict(arrays, None)
    if len(outputs) != 1:
        raise Refused(400, f"this model has {len(outputs)} outputs; use :predict")
    return next(iter(outputs.values()))


def _check_signature(data: Mapping[str, Any]) -> None:
    name = data.get("signature_name", SIGNATURE)
    if name not in (SIGNATURE, ""):
        raise Refused(400, f"the model has no signature {checked_inputs.shortened(name)}, only {SIGNATURE!r}")


def _from_rows(document: Document, rows: Any, manifest: Manifest, key: str) -> dict[str, Array]:
    if type(rows) is not list:
        raise Refused(400, f"{key} is {said(rows)}, and a list is expected")
    if not rows:
        raise Refused(400, f"{key} is empty")
    if type(rows[0]) is not dict or _is_binary(rows[0]):
        if len(manifest.inputs) != 1:
            checked_inputs.check_names(manifest, ())
        return {manifest.inputs[0].name: _array(document, rows, manifest, 0, key)}
    for row in rows:
        if type(row) is not dict:
            raise Refused(400, f"{key} holds objects and {said(row)}")
        checked_inputs.check_names(manifest, row)
    return {
        one.name: _array(document, [row[one.name] for row in rows], manifest, place, one.name)
        for place, one in enumerate(manifest.inputs)
    }


def _from_columns(document: Document, columns: Any, manifest: Manifest) -> dict[str, Array]:
    if type(columns) is not dict or _is_binary(columns):
        if len(manifest.inputs) != 1:
            checked_inputs.check_names(manifest, ())
        return {manifest.inputs[0].name: _array(document, columns, manifest, 0, "inputs")}
    checked_inputs.check_names(manifest, columns)
    arrays = {
        one.name: _array(document, columns[one.name], manifest, place, one.name)
        for place, one in enumerate(manifest.inputs)
    }
    checked_inputs.check_rows(manifest, arrays)
    return arrays


def _array(document: Document, value: Any, manifest: Manifest, place: int, name: str) -> Array:
    tensor = manifest.inputs[place]
    array = document.array(value, tensor.dtype, len(tensor.shape), name)
    checked_inputs.check_shape(tensor, array.shape)
    return array


def _is_binary(value: dict[str, Any]) -> bool:
    return value.keys() == {"b64"}


def _predictions(outputs: dict[str, Array]) -> bytes:
    if len(outputs) == 1:
        name, array = next(iter(outputs.items()))
        return b'{"predictions": ' + json_output.with_tokens(array, is_binary=name.endswith("_bytes")) + b"}"
    if len({array.shape[:1] for array in outputs.values()}) != 1 or not next(iter(outputs.values())).ndim:
        raise Refused(400, 'the outputs of this model have no common rows; send {"inputs": ...} (columns)')
    return b'{"predictions": ' + json_output.rows_with_tokens(outputs) + b"}"


def _outputs(outputs: dict[str, Array]) -> bytes:
    return b'{"outputs": ' + json_output.columns_with_tokens(outputs) + b"}"


def _results(rows: list[Any]) -> bytes:
    return b'{"results": ' + json_output.plain(rows) + b"}"
