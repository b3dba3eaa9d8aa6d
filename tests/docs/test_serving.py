"""docs/serving.md: every program on it runs, and what it exports can be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.models.model_manifest import FORMATS, Manifest
from oarlock.models.model_versions import versions
from tests.support.pages import ROOT, blocks

PROGRAMS = dict(
    zip(("saved_model", "torch_export", "jax_export", "python"), blocks("docs/serving.md", "python"))
)


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


def test_the_page_has_every_format_and_every_field_of_the_manifest() -> None:
    text = (ROOT / "docs" / "serving.md").read_text()
    manifest = Manifest(format="onnx", inputs=(), outputs=())
    for name in (*FORMATS, *vars(manifest)):
        assert f"`{name}`" in text, name
