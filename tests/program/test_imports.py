"""Every module of Oarlock can be imported; what is installed has all that they import."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import oarlock

MODULES = [
    module.name
    for module in pkgutil.walk_packages(oarlock.__path__, "oarlock.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_imported(module: str) -> None:
    importlib.import_module(module)
