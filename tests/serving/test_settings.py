"""Settings come from a file that anybody may have edited."""

from __future__ import annotations

import json

import pytest

from oarlock.serving.settings import Settings


def test_settings_survive_the_file() -> None:
    settings = Settings("digits", "s3://bucket/model", replicas=3, weights={1: 90.0, 2: 10.0}, token_file="t")
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"replicas": 0}, "replicas is 0"),
        ({"port": 70000}, "port is 70000"),
        ({"queue": 0}, "queue is 0"),
        ({"versions": "latest"}, "newest, best or a number"),
        ({"weights": {"one": 1}}, "weights has 'one'"),
        ({"weights": {"1": 0}}, "no version any requests"),
        ({"tls_cert": "cert.pem"}, "belong together"),
        ({"version": 99}, "record version 99"),
        ({"replicas": "many"}, "Settings.replicas is 'many'"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, object], said: str) -> None:
    data = {**json.loads(Settings("digits", "/models").to_json()), **change}
    with pytest.raises(ValueError, match=said):
        Settings.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000])
def test_what_is_no_settings_raises_only_value_errors(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Settings.from_json(text)
