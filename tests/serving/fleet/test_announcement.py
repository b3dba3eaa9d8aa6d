"""The request that a server prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.fleet import announcement
from oarlock.serving.settings import Settings


def manifest(*inputs: Tensor) -> Manifest:
    return Manifest(format="onnx", inputs=inputs, outputs=())


def test_a_small_request_is_written_out() -> None:
    inputs = (Tensor("x", "float32", (None, 2)), Tensor("text", "string", (None,)), Tensor("is", "bool", ()))
    line = announcement.curl(Settings("m", "/m"), "http://127.0.0.1:1", manifest(*inputs))
    body = json.loads(line.partition(" -d ")[2].strip("'"))
    assert body == {"inputs": {"x": [[0, 0]], "text": ["a"], "is": False}}
    assert line.startswith("curl -s http://127.0.0.1:1/v1/models/m:predict")


def test_a_large_one_comes_from_python() -> None:
    inputs = (Tensor("image", "uint8", (None, 28, 28, 1)), Tensor("name", "string", (None, 2)))
    line = announcement.curl(Settings("m", "/m"), "http://127.0.0.1:1", manifest(*inputs))
    writer, _, rest = line.partition(" | ")
    assert rest == "curl -s http://127.0.0.1:1/v1/models/m:predict -d @-"
    code = writer.removeprefix("python3 -c ").strip("'")
    written = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    body = json.loads(written)["inputs"]
    assert body["name"] == [["a", "a"]]
    assert (len(body["image"]), len(body["image"][0]), len(body["image"][0][0])) == (1, 28, 28)
    assert body["image"][0][0][0] == [0]


def test_a_token_and_a_certificate_are_named_by_their_files() -> None:
    settings = Settings("m", "/m", token_file="/k/token", tls_cert="/k/cert", tls_key="/k/key")
    line = announcement.curl(settings, "https://127.0.0.1:1", manifest(Tensor("x", "float32", (None,))))
    assert '--cacert /k/cert -H "Authorization: Bearer $(cat /k/token)"' in line


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"url": 1}', b"\xff"])
def test_what_is_no_announcement_is_none(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "serving.ready"
    if content is not None:
        file.write_bytes(content)
    assert announcement.read(file) is None
    told = announcement.Announcement("http://127.0.0.1:1", "m", 2, "LiteRT", "curl")
    announcement.write(file, told)
    assert announcement.read(file) == told
