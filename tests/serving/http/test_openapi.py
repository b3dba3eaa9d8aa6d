"""The description lists every address; its schemas tell good requests from bad ones as the server does."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from oarlock.serving.http import openapi, routes
from tests.support.http_calls import get, post
from tests.support.served_models import Computed, ServedModels, calculator, classifier, echo, serving

IMAGE = [[0.5, 1, 2]] * 4
CASES: list[tuple[Computed, Any]] = [
    (classifier(), {"instances": [IMAGE]}),
    (classifier(), {"instances": [{"image": IMAGE}]}),
    (classifier(), {"inputs": {"image": [IMAGE, IMAGE]}}),
    (classifier(), {"instances": [IMAGE[:3]]}),
    (classifier(), {"instances": [{"picture": IMAGE}]}),
    (classifier(), {"instances": [IMAGE], "inputs": [IMAGE]}),
    (classifier(), {"instances": []}),
    (calculator(), {"instances": [{"a": [1, 2], "b": 3}]}),
    (calculator(), {"instances": [{"a": [1, 2]}]}),
    (calculator(), {"instances": [{"a": [1, 2], "b": 300}]}),
    (calculator(), {"instances": [{"a": [1, 2], "b": 1.5}]}),
    (calculator(), {"inputs": {"a": [[1, True]], "b": [1]}}),
    (echo("string"), {"instances": [["a", {"b64": "YQ=="}]]}),
    (echo("string"), {"instances": [["a", 5]]}),
    (echo("bool"), {"instances": [[True, False]]}),
    (echo("bool"), {"instances": [[1, 0]]}),
]


def test_every_address_is_described() -> None:
    manifest = classifier().manifest
    described = openapi.document("m", manifest)["paths"]
    for path, route in routes.table("m").items():
        if not path.startswith("/page/"):
            assert {method.lower() for method in route.handlers} == set(described[path]), path
    plain = {path for path in described if "{version}" not in path}
    assert plain <= routes.table("m").keys()


@pytest.mark.parametrize(("model", "body"), CASES)
def test_the_schema_agrees_with_the_server(model: Computed, body: Any) -> None:
    with serving(ServedModels([model])) as port:
        found = get(port, "/openapi.json").data
        schema = found["paths"]["/v1/models/m:predict"]["post"]["requestBody"]["content"]["application/json"]
        is_valid = jsonschema.Draft202012Validator(schema["schema"]).is_valid(body)
        assert is_valid == (post(port, "/v1/models/m:predict", body).status == 200)


def test_the_schema_of_open_inference() -> None:
    found = openapi.document("m", calculator().manifest)["paths"]["/v2/models/m/infer"]["post"]
    schema = found["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator(schema)
    a = {"name": "a", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}
    b = {"name": "b", "shape": [1], "datatype": "INT8", "data": [1]}
    assert validator.is_valid({"inputs": [a, b], "id": "7"})
    assert not validator.is_valid({"inputs": [a]})
    assert not validator.is_valid({"inputs": [a, {**b, "datatype": "INT16"}]})
    assert not validator.is_valid({"inputs": [{**a, "shape": [1, 3]}, b]})
