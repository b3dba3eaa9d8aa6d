"""docs/serving.md: every program on it runs, and what it exports can be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from oarlock.models.model_manifest import FORMATS, KINDS, Manifest
from oarlock.models.model_versions import versions
from oarlock.serving.generation.generator import Generator
from oarlock.serving.generation.sampling import Sampling
from oarlock.serving.http import client_connection, routes
from oarlock.serving.settings import Settings
from tests.support.model_servers import model_server, publish
from tests.support.pages import ROOT, blocks

BLOCKS = blocks("docs/serving.md", "python")
PROGRAMS = dict(zip(("saved_model", "torch_export", "jax_export", "python"), BLOCKS))
(TEXT_EXPORT,) = (block for block in BLOCKS if 'kind="completion"' in block)
(TEXT_CLIENT,) = (block for block in BLOCKS if "import openai" in block)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", PROGRAMS)
def test_a_program_of_the_page_exports_a_version(format_name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAMS[format_name])
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(Path("model", "1"))]
    [version] = versions(tmp_path / "model")
    manifest = version.manifest()
    assert manifest.format == format_name
    assert manifest.is_batched
    for name in manifest.files.values():
        assert (version.path / name).is_file()


def test_prometheus_gets_the_metrics_as_the_page_configures_it(tmp_path: Path) -> None:
    """What it would send for that configuration, to a server with that token."""
    (written,) = (yaml.safe_load(one) for one in blocks("docs/serving.md", "yaml") if "scrape_configs" in one)
    (job,) = written["scrape_configs"]
    kind, file = job["authorization"]["type"], Path(job["authorization"]["credentials_file"])
    publish(tmp_path / "model", 1)
    token = tmp_path / file.name
    token.write_text("open sesame\n")
    with model_server(tmp_path / "model", tmp_path, token_file=str(token)) as server:
        asked = urllib.request.Request(f"{job['scheme']}://127.0.0.1:{server.port}/metrics")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(asked, timeout=120)
        asked.add_header("Authorization", f"{kind} {token.read_text().strip()}")
        asked.add_header(
            "Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        )
        with urllib.request.urlopen(asked, timeout=120) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"oarlock_requests_total{" in answer.read()


def test_the_text_model_of_the_page_is_served_to_the_client_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXT_EXPORT)
    (tmp_path / "client.py").write_text(TEXT_CLIENT)

    def told(program: str, **variables: str) -> str:
        return subprocess.run(
            [sys.executable, program],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        ).stdout

    assert told("train.py").split() == [str(Path("model", "1"))]
    with model_server(tmp_path / "model", tmp_path, name="letters") as server:
        written = told("client.py", SERVER=server.url)
    assert len(written) == 41
    pairs = {one + other for one, other in pairwise("the cat sat on the mat and that was that\nthe")}
    assert {one + other for one, other in pairwise(written[:-1])} <= pairs


def test_the_page_has_every_attribute_of_a_generator_and_every_field_of_a_request() -> None:
    text = (ROOT / "docs" / "serving.md").read_text()
    for name in Generator.__annotations__:
        assert f"| `{name}` |" in text
    for name in ("encode(text)", "decode(token)", "start(slot, tokens)", "step(slots, positions, tokens)"):
        assert f"| `{name}` |" in text
    for one in fields(Sampling):
        assert f"| `{one.name}` |" in text


def test_the_page_has_every_format_and_every_field_of_the_manifest() -> None:
    text = (ROOT / "docs" / "serving.md").read_text()
    manifest = Manifest(format="onnx", inputs=(), outputs=())
    for name in (*FORMATS, *vars(manifest)):
        assert f"`{name}`" in text, name


def test_the_page_has_every_address_and_every_status() -> None:
    text = (ROOT / "docs" / "serving.md").read_text()
    for path in routes.table("M"):
        assert f"`{path}`" in text or path.startswith("/page/") or path == "/openapi.json", path
    for status in (400, 401, 404, 405, 408, 413, 415, 429, 431, 500, 503, 504):
        assert f"| {status} |" in text
    for kind in KINDS:
        assert f"| `{kind}` |" in text


def test_the_limits_on_the_page_are_those_of_the_server() -> None:
    text = (ROOT / "docs" / "serving.md").read_text()
    assert Settings("m", "models").body_limit == 32 << 20
    assert "32 MiB" in text
    assert f"within {client_connection.PATIENCE:g} s" in text
    assert f"each {client_connection.SLOWEST >> 10} KiB" in text
    assert f"more than {client_connection.LARGEST_HEADERS >> 10} KiB" in text
    assert f"{client_connection.MOST_CONNECTIONS:,} connections" in text
