"""`oarlock schema`: the JSON Schema of a job file."""

from __future__ import annotations

import json

import pytest

from tests.support.commands import Command


@pytest.mark.parametrize("words", [["schema"], ["schema", "--json"]])
def test_schema(oarlock: Command, words: list[str]) -> None:
    schema = json.loads(oarlock(*words).stdout)
    assert schema["type"] == "object"
    assert {"program", "roles", "limits"} <= set(schema["properties"])
