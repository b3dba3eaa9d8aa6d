"""A model's own code is run from its folder, and leaves that as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oarlock.models import predict_file


def test_the_folder_stays_as_it_was_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that finds it changed loads the model once more."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "beside.py").write_text("WORD = 'here'\n")
    (tmp_path / "predict.py").write_text("import beside\n\ndef load(folder):\n    return beside.WORD\n")
    before = tmp_path.stat().st_mtime_ns
    assert predict_file.load(tmp_path / "predict.py", tmp_path) == "here"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["beside.py", "predict.py"]
    assert tmp_path.stat().st_mtime_ns == before
    assert not sys.dont_write_bytecode
