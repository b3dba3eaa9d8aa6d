"""A file is replaced as a whole, also by a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.system.atomic_file import write_durably
from tests.support import flushes


def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "result.json").write_text("old")
    seen = flushes.recorded(monkeypatch)
    write_durably(tmp_path / "result.json", b"newer")
    assert seen == flushes.durable(tmp_path / "result.json")
    assert seen[0] == "flush .result.json.part 5", "all of it"
    assert (tmp_path / "result.json").read_text() == "newer"
