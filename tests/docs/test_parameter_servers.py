"""The programs of docs/parameter-servers.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.gangs import Gang

PAGE = (Path(__file__).parents[2] / "docs/parameter-servers.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("number", "said"), [(0, r"loss \d+\.\d+"), (1, "steps 200")])
def test_the_programs_of_the_page_run(home: Path, tmp_path: Path, number: int, said: str) -> None:
    gang = Gang(tmp_path / "job", PROGRAMS[number], roles={"chief": 1, "worker": 1, "ps": 2})
    assert gang.end().state == "succeeded", gang.told()
    assert any(re.fullmatch(rf"chief-0\| {said}", line) for line in gang.lines), gang.told()


def test_there_is_a_test_for_each_program() -> None:
    assert len(PROGRAMS) == 2
