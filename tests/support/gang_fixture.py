from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.gangs import Gang


@pytest.fixture
def start(home: Path, tmp_path: Path) -> Callable[..., Gang]:
    def make(program: str, **fields: Any) -> Gang:
        return Gang(tmp_path / "job", program, **fields)

    return make
