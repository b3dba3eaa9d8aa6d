"""The Open Inference Protocol (v2): `infer`, in JSON and with its binary tensor extension.

Its JSON is standard: NaN and infinities are only possible as binary tensors, in and out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from oarlock.models.model_manifest import DTYPES, Manifest, Tensor
from oarlock.serving.dialects import binary_tensors, checked_inputs, json_output
from oarlock.serving.dialects.checked_inputs import shortened
from oarlock.serving.dialects.exchange import Answer, Call, Refused
from oarlock.serving.dialects.json_input import Document, said
from oarlock.serving.dialects.json_output import NotJson

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_LENGTH = b"inference-header-content-length"
_BYTES = b"application/octet-stream"
_NOT_HERE = ("shared_memory_region", "classification")  # Triton extensions
_LARGEST = 2**40  # of a dimension; more cannot arrive
_OWN = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "string": "BYTES"}
DATATYPES = {dtype: _OWN.get(dtype, dtype.upper()) for dtype in DTYPES}
_DATATYPE_OF = {np.dtype(dtype): name for dtype, name in DATATYPES.items() if name != "BYTES"}


async def infer(call: Call) -> Answer:
    """`POST /v2/models/M/infer`."""
    served = call.pick()
    written, tail = _split(call)
    document = Document(written)
    wanted = _Wanted(document.data, served.manifest)
    arrays = _inputs(document, tail, served.manifest)
    outputs = await served.predict(arrays, wanted.timeout)
    header: dict[str, Any] = {"model_name": call.models.name, "model_version": str(served.number)}
    if wanted.id is not None:
        header["id"] = wanted.id
    return _answer(header, wanted, outputs)


class _Wanted:
    """What a request asks for besides its inputs. Raises Refused."""

    def __init__(self, data: dict[str, Any], manifest: Manifest) -> None:
        self.id: str | None = data.get("id")
        if self.id is not None and type(self.id) is not str:
            raise Refused(400, f"id is {said(self.id)}, and text is expected")
        parameters = _parameters(data, "the request")
        self.timeout = _seconds(parameters.get("timeout"))
        self._is_binary = _flag(parameters, "binary_data_output", False)
        self._outputs: dict[str, bool] | None = None  # name: whether it is binary
        if data.get("outputs"):
            self._outputs = dict(self._output(one, manifest) for one in _objects(data, "outputs"))

    def _output(self, one: dict[str, Any], manifest: Manifest) -> tuple[str, bool]:
        name = one.get("name")
        if name not in [tensor.name for tensor in manifest.outputs]:
            has = checked_inputs.described(manifest.outputs)
            raise Refused(400, f"the model has no output {shortened(name)}; it gives {has}")
        parameters = _parameters(one, f"output {shortened(name)}")
        return str(name), _flag(parameters, "binary_data", self._is_binary)

    def chosen(self, outputs: dict[str, Array]) -> list[tuple[str, Array, bool]]:
        """Return the requested outputs and how to write each."""
        if self._outputs is None:
            return [(name, array, self._is_binary) for name, array in outputs.items()]
        return [(name, outputs[name], is_binary) for name, is_binary in self._outputs.items()]


def _split(call: Call) -> tuple[bytes, memoryview]:
    """Return the JSON and the binary tensors after it."""
    length = call.headers.get(_LENGTH)
    body = call.body
    if length is None:
        return body, memoryview(b"")
    if not length.isdigit() or len(length) > 18 or int(length) > len(body):
        raise Refused(400, f"Inference-Header-Content-Length is {shortened(length.decode('latin-1'))}")
    return body[: int(length)], memoryview(body)[int(length) :]


def _inputs(document: Document, tail: memoryview, manifest: Manifest) -> dict[str, Array]:
    listed = _objects(document.data, "inputs")
    names: list[str] = []
    for one in listed:
        name = one.get("name")
        if type(name) is not str:
            raise Refused(400, f"an input has the name {said(name)}, and text is expected")
        names.append(name)
    checked_inputs.check_names(manifest, names)
    if len(names) != len(manifest.inputs):
        raise Refused(400, "an input is given twice")
    tensors = {one.name: one for one in manifest.inputs}
    arrays = {}
    at = 0
    for one in listed:
        tensor = tensors[one["name"]]
        shape = _shape(one, tensor)
        size = _parameters(one, f"input {tensor.name!r}").get("binary_data_size")
        if size is None:
            arrays[tensor.name] = _from_json(document, one, tensor, shape)
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - at:
            left = len(tail) - at
            raise Refused(
                400, f"{tensor.name!r} has the binary_data_size {said(size)}; {left} bytes are left"
            )
        arrays[tensor.name] = binary_tensors.read(tail[at : at + size], tensor.dtype, shape, tensor.name)
        at += size
    if at != len(tail):
        raise Refused(400, f"the body has {len(tail) - at} bytes that belong to no input")
    checked_inputs.check_rows(manifest, arrays)
    return arrays


def _shape(one: dict[str, Any], tensor: Tensor) -> tuple[int, ...]:
    datatype, shape = one.get("datatype"), one.get("shape")
    if datatype != DATATYPES[tensor.dtype]:
        takes = DATATYPES[tensor.dtype]
        raise Refused(
            400, f"{tensor.name!r} has the datatype {shortened(datatype)}, and the model takes {takes}"
        )
    if type(shape) is not list or not all(type(size) is int and 0 <= size < _LARGEST for size in shape):
        raise Refused(
            400, f"{tensor.name!r} has the shape {shortened(shape)}, and a list of sizes is expected"
        )
    checked_inputs.check_shape(tensor, tuple(shape))
    return tuple(shape)


def _from_json(document: Document, one: dict[str, Any], tensor: Tensor, shape: tuple[int, ...]) -> Array:
    """Lists may be nested, or flat in row order."""
    if "data" not in one:
        raise Refused(400, f"{tensor.name!r} has neither data nor a binary_data_size")
    data, name = one["data"], repr(tensor.name)
    is_flat = type(data) is list and not (data and type(data[0]) is list)
    array = document.array(data, tensor.dtype, 1 if is_flat else len(shape), name)
    count = 1
    for size in shape:
        count *= size
    if array.size != count or not (is_flat or array.shape == shape):
        given = f"{array.size} values" if is_flat else f"the shape {list(array.shape)}"
        raise Refused(400, f"{name} has {given} in its data, and {list(shape)} as its shape")
    return array.reshape(shape)


def _answer(header: dict[str, Any], wanted: _Wanted, outputs: dict[str, Array]) -> Answer:
    listed, tails = [], []
    for name, array, is_binary in wanted.chosen(outputs):
        datatype = "BYTES" if array.dtype.kind in "OSU" else _DATATYPE_OF[array.dtype]
        about: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if is_binary:
            tails.append(binary_tensors.write(array))
            about["parameters"] = {"binary_data_size": len(tails[-1])}
            listed.append(orjson.dumps(about))
        else:
            listed.append(orjson.dumps(about)[:-1] + b',"data":' + _data(name, array) + b"}")
    written = orjson.dumps(header)[:-1] + b',"outputs":[' + b",".join(listed) + b"]}"
    if not tails:
        return Answer(written)
    length = [(b"inference-header-content-length", b"%d" % len(written))]
    return Answer(b"".join([written, *tails]), content_type=_BYTES, headers=length)


def _data(name: str, array: Array) -> bytes:
    try:
        return json_output.strict(array.ravel())
    except NotJson as problem:
        raise Refused(
            400,
            f"output {name!r} contains {problem}, which JSON cannot represent; "
            'ask for it with "parameters": {"binary_data": true}',
        ) from None


def _objects(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    listed = data.get(key)
    if type(listed) is not list or not all(type(one) is dict for one in listed):
        raise Refused(400, f"{key} is {said(listed)}, and a list of objects is expected")
    return listed


def _parameters(data: dict[str, Any], of: str) -> dict[str, Any]:
    found = data.get("parameters", {})
    if type(found) is not dict:
        raise Refused(400, f"the parameters of {of} are {said(found)}, and an object is expected")
    for name in _NOT_HERE:
        if name in found:
            raise Refused(400, f"this server has no extension for the parameter {name!r}")
    return found


def _flag(parameters: dict[str, Any], name: str, usual: bool) -> bool:
    found = parameters.get(name, usual)
    if type(found) is not bool:
        raise Refused(400, f"the parameter {name!r} is {said(found)}, and true or false is expected")
    return found


def _seconds(microseconds: Any) -> float | None:
    """Triton's timeout; 0 means none."""
    if microseconds in (None, 0):
        return None
    if type(microseconds) is not int or microseconds < 0:
        raise Refused(400, f"timeout is {said(microseconds)}, and microseconds are expected")
    return microseconds / 1e6
