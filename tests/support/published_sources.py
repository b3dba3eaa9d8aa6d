"""Bringing a published program onto this machine: git at a pinned commit, pip at pinned versions. What was
brought stays in build/programs for the next time; a program runs in a copy, since most write beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.published_programs import Packages, Program, Repository

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "programs"
_PATIENCE = 300  # seconds for one download


class NotFetched(Exception):
    """There is no network, or the source is gone."""


def place(program: Program, folder: Path) -> tuple[Path, dict[str, str]]:
    """Where to run it, and the variables that it needs."""
    variables = dict(program.environment)
    source = program.source
    packages = (*program.needs, *(source.pinned if isinstance(source, Packages) else ()))
    if packages:
        paths = [variables.get("PYTHONPATH"), str(_installed(packages))]
        variables["PYTHONPATH"] = ":".join(path for path in paths if path)
    if isinstance(source, Repository):
        shutil.copytree(_cloned(source) / source.folder, folder, ignore=shutil.ignore_patterns(".git"))
    else:
        shutil.copytree(ROOT / "soak" / "programs", folder)
    if program.prepare:
        _run([sys.executable, *program.prepare], folder)
    return folder, variables


def _cloned(source: Repository) -> Path:
    """Only the program's folder, of only that commit: some of these repositories are large."""
    clone = CACHE / source.name.replace("/", "+") / source.commit / (source.folder.replace("/", "+") or "all")
    if not clone.exists():
        draft = _draft(clone)
        url = f"https://github.com/{source.name}"
        _run(["git", "clone", "-q", "--filter=blob:none", "--no-checkout", url, str(draft)], CACHE)
        if source.folder:
            _run(["git", "sparse-checkout", "set", source.folder], draft)
        _run(["git", "checkout", "-q", source.commit], draft)
        draft.rename(clone)
    return clone


def _installed(packages: tuple[str, ...]) -> Path:
    """Without what they depend on: torch must stay the one that is there."""
    target = CACHE / "packages" / "+".join(packages)
    if not target.exists():
        draft = _draft(target)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(draft), *packages]
        _run(pip, CACHE)
        draft.rename(target)
    return target


def _draft(path: Path) -> Path:
    """Where it is made, so that half of it is never taken for all."""
    draft = path.with_name(f"{path.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.parent.mkdir(parents=True, exist_ok=True)
    return draft


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NotFetched(f"{' '.join(command[:3])} ...: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise NotFetched(f"{' '.join(command[:3])} ...: nothing after {_PATIENCE} s") from error
