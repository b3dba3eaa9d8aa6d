"""Data that is prepared where checkpoints are scored, if it is not there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.agent.ingest.data_folder import DataFolder
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.score import missing_data
from oarlock.agent.score.score_error import ScoreError
from oarlock.engines.kubernetes.manifests import packing
from oarlock.job.model import parse

INGEST = """
import os, pathlib, sys
print("preparing")
source = pathlib.Path(os.environ["SOURCES_DIR"], "raw.txt").read_text()
(pathlib.Path(os.environ["DATA_DIR"]) / "rows").write_text(source + os.environ["SUFFIX"])
with open("calls", "a") as calls:
    calls.write("x")
sys.exit(int(os.environ["ENDS"]))
"""


def spec_of(folder: Path, ends: int = 0) -> Spec:
    (folder / "train.py").touch()
    (folder / "raw.txt").write_text("rows")
    (folder / "ingest.py").write_text(INGEST)
    ingest = {
        "program": "ingest.py",
        "sources": {"raw.txt": "raw.txt"},
        "env": {"SUFFIX": "!", "ENDS": str(ends)},
    }
    spec = packing.spec_for(parse({"program": "train.py", "ingest": ingest}), folder, "r1")
    return replace(spec, cwd=str(folder), folders={"data": str(folder / "data" / "key")})


def test_an_ingest_runs_once_and_its_data_is_complete(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert missing_data.is_missing(spec)
    with (tmp_path / "said").open("wb") as output:
        missing_data.prepare(spec, output.fileno())
        missing_data.prepare(spec, output.fileno())
    assert not missing_data.is_missing(spec)
    assert Path(spec.folders["data"], "rows").read_text() == "rows!"
    assert (tmp_path / "calls").read_text() == "x"
    assert "preparing" in (tmp_path / "said").read_text()


def test_an_ingest_that_fails_gives_its_exit_code_and_leaves_no_data(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, ends=7)
    with pytest.raises(ScoreError, match="the ingest ended with exit code 7: nothing is scored") as failure:
        missing_data.prepare(spec, 2)
    assert failure.value.code == 7
    assert missing_data.is_missing(spec)


def test_data_that_another_run_prepares_is_not_touched(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    lock = DataFolder(Path(spec.folders["data"])).try_lock("other-abcd")
    assert lock is not None
    try:
        with pytest.raises(ScoreError, match="other-abcd is preparing the data: try again when it is done"):
            missing_data.prepare(spec, 2)
    finally:
        os.close(lock)
    missing_data.prepare(spec, 2)
    assert not missing_data.is_missing(spec)


def test_what_no_ingest_makes_is_not_missing(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert spec.ingest is not None
    assert not missing_data.is_missing(replace(spec, ingest=None))
    assert not missing_data.is_missing(replace(spec, ingest=replace(spec.ingest, when="never")))
