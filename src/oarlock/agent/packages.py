"""Installing what a job asks for with `pip:`, inside its pod, before anything is imported.

Into a folder of the pod's own, ahead of the image's packages; what the image has already and fits is left
as it is, so that `pip: [tqdm]` does not bring another NumPy with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

_TAIL = 5  # of pip's lines, in an error


def install(requirements: list[str], work: Path, env: Mapping[str, str]) -> str | None:
    """None once all is there, or what went wrong, in pip's words. `env` is the job's: PIP_INDEX_URL, a proxy."""
    if not requirements:
        return None
    prefix = work / "packages"
    words = [sys.executable, "-m", "pip", "install", "--prefix", str(prefix), "--no-input"]
    words += ["--disable-pip-version-check", "--no-warn-script-location", "--progress-bar", "off"]
    done = subprocess.run(
        [*words, "--", *requirements],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("WARNING")]
        return "\n".join([f"pip could not install {' '.join(requirements)}", *said[-_TAIL:]])
    _use(prefix)
    return None


def _use(prefix: Path) -> None:
    """For every process that this one starts."""
    places = {
        sysconfig.get_path(name, vars={"base": str(prefix), "platbase": str(prefix)})
        for name in ("purelib", "platlib")
    }
    _put_first("PYTHONPATH", sorted(places))
    _put_first("PATH", [str(prefix / "bin")])


def _put_first(variable: str, places: list[str]) -> None:
    before = os.environ.get(variable)
    os.environ[variable] = os.pathsep.join([*places, *([before] if before else [])])
