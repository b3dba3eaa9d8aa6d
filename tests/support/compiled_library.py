"""Stand-ins for libraries of NVIDIA's, compiled from C, which the dynamic linker finds as the real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def build(folder: Path, name: str, source: str) -> Path:
    """Compile a library of that name in a new folder below this one, and return the new folder."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip(f"no C compiler builds the stand-in for {name}")
    made = folder / name.partition(".")[0]
    made.mkdir()
    (made / "source.c").write_text(source)
    command = [compiler, "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", str(made / name)]
    subprocess.run([*command, str(made / "source.c")], check=True, timeout=300)
    return made


def search_path(folder: Path) -> dict[str, str]:
    """The variable for a process that is to find the libraries in that folder before others."""
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": f"{folder}{os.pathsep + before if before else ''}"}
