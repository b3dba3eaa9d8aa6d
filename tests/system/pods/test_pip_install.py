"""What a pod says if pip cannot install what the job needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oarlock.system.pods import pip_install
from tests.support.ports import free_ports


def installed(folder: Path, **env: str) -> str | None:
    own = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", **env}
    return pip_install.install(["no-such-package"], folder, str(folder), own)


def test_an_index_that_cannot_be_reached_is_not_a_package_that_does_not_exist(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}/simple"
    why = installed(tmp_path, PIP_INDEX_URL=nobody, PIP_RETRIES="1")
    assert why is not None
    assert why.splitlines()[0] == (
        "pip could not install no-such-package: the package index cannot be reached from the pod "
        "(Connection refused); env: {PIP_INDEX_URL: ...} names another one, or an image may have the packages"
    )


def test_a_package_that_does_not_exist_is_said_in_pips_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    why = installed(tmp_path, PIP_NO_INDEX="1")
    assert why is not None
    assert why.splitlines()[0] == (
        "pip could not install no-such-package: No matching distribution found for no-such-package"
    )
