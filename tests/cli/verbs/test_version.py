"""`oarlock version`, which is `oarlock --version`."""

from __future__ import annotations

import json

from oarlock import __version__
from tests.support.commands import Command


def test_version(oarlock: Command) -> None:
    assert oarlock("version").stdout == oarlock("--version").stdout == f"oarlock {__version__}\n"
    told = json.loads(oarlock("version", "--json").stdout)
    assert set(told) == {"oarlock", "python"}
    assert told["oarlock"] == __version__
