"""Install packages inside a pod before anything is imported.

They go into the pod's own environment, ahead of the image's packages. pip sees those too. A package that fits
is used as it is, so that `pip: [tqdm]` does not bring another NumPy. One that does not fit stays, and is
shadowed: the image belongs to root, and pip's `--prefix` would try to uninstall it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

_TAIL = 5  # of pip's lines in an error
# pip only warns about this; after the last attempt it says that there is no such package.
_UNREACHABLE = re.compile(
    r"Retrying .*total=0.*after connection broken by .*?: (?:\[Errno -?\d+\] )?([^:'\"]*)['\")]*: /"
)


def install(packages: Sequence[str], work: Path, cwd: str, env: Mapping[str, str]) -> str | None:
    """Install packages below `work`. Returns None, or what went wrong, in pip's words.

    `env` has the user's variables for pip: an index, a proxy. Paths among the packages are relative to `cwd`.
    """
    if not packages:
        return None
    import venv  # 15 ms, which a pod without packages saves

    folder = work / "packages"
    try:
        venv.create(folder, symlinks=True)
    except OSError as problem:
        return f"{problem.filename or folder} cannot be written: {problem.strerror}"
    words = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    words += ["--disable-pip-version-check", "--no-warn-script-location", "--progress-bar", "off"]
    done = subprocess.run(
        [*words, "--", *packages],
        cwd=cwd,
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(_of_the_image())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode:
        return _failure(packages, done.stdout)
    _use(folder)
    return None


def _failure(requirements: Sequence[str], output: str) -> str:
    """What went wrong, with pip's own reason on the first line, because some views show only that."""
    said = [line for line in output.splitlines() if line.strip() and not line.startswith("WARNING")]
    why = next((line for line in reversed(said) if line.startswith("ERROR: ")), "").removeprefix("ERROR: ")
    what = f"pip could not install {' '.join(requirements)}"
    broken = _UNREACHABLE.search(output)
    if broken is not None and "No matching distribution" in why:
        why = (
            f"the package index cannot be reached from the pod ({broken[1]}); "
            "env: {PIP_INDEX_URL: ...} names another one, or an image may have the packages"
        )
    return "\n".join([f"{what}: {why}" if why else what, *said[-_TAIL:]])


def _of_the_image() -> list[str]:
    """The folders of the image's packages, including pip: its Python may itself be in an environment."""
    return [place for place in sys.path if place.endswith(("site-packages", "dist-packages"))]


def _use(folder: Path) -> None:
    """Put the environment first for every process that this one starts."""
    base = {"base": str(folder), "platbase": str(folder)}
    places = {sysconfig.get_path(name, "posix_prefix", base) for name in ("purelib", "platlib")}
    _put_first("PYTHONPATH", sorted(places))
    _put_first("PATH", [str(folder / "bin")])


def _put_first(variable: str, places: list[str]) -> None:
    before = os.environ.get(variable)
    os.environ[variable] = os.pathsep.join([*places, *([before] if before else [])])
