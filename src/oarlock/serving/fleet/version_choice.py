"""Which versions of a model to serve: the newest, the best, a number, or several by weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oarlock.models import model_manifest
from oarlock.models.model_manifest import BadManifest
from oarlock.models.model_versions import SAVED_MODEL, Version, versions
from oarlock.run.best_scores import less_is_better
from oarlock.run.typed import is_number
from oarlock.serving.settings import BEST, NEWEST, Settings


@dataclass(frozen=True)
class VersionSet:
    """What one replica loads. Equal keys: the same settings and, judging by file times, the same content."""

    versions: tuple[Version, ...]
    key: tuple[object, ...]

    @property
    def name(self) -> str:
        """As text: version 3, or versions 3 and 4."""
        numbers = [str(one.number) for one in self.versions]
        return f"version {numbers[0]}" if len(numbers) == 1 else f"versions {' and '.join(numbers)}"


def candidates(settings: Settings, folder: Path) -> list[VersionSet]:
    """Return what may be served, the preferred set first; the others are used if it does not load."""
    found = versions(folder)
    if settings.weights:
        chosen = tuple(one for one in found if one.number in settings.weights)
        return [_set(settings, chosen)] if len(chosen) == len(settings.weights) else []
    if settings.versions == NEWEST:
        return [_set(settings, (one,)) for one in reversed(found)]
    if settings.versions == BEST:
        return [_set(settings, (one,)) for one in by_score(found)]
    return [_set(settings, (one,)) for one in found if str(one.number) == settings.versions]


def missing(settings: Settings, folder: Path) -> str:
    """Why there are no candidates, as text."""
    numbers = [one.number for one in versions(folder)]
    place = settings.source
    if not numbers:
        return f"{place} holds no model: neither a SavedModel nor numbered versions"
    wanted = sorted(settings.weights) if settings.weights else [settings.versions]
    lacking = ", ".join(str(one) for one in wanted if int(one) not in numbers)
    return f"{place} has no version {lacking}; it has {', '.join(map(str, numbers))}"


def by_score(found: Sequence[Version]) -> list[Version]:
    """Return versions, best first, by the first score that all of them have; else newest first."""
    scores = {one.number: _scores(one) for one in found}
    newest = list(reversed(found))
    shared = (
        [name for name in scores[newest[0].number] if all(name in one for one in scores.values())]
        if found
        else []
    )
    if not shared:
        return newest
    sign = 1 if less_is_better(shared[0]) else -1
    return sorted(newest, key=lambda one: sign * scores[one.number][shared[0]])


def _scores(version: Version) -> dict[str, float]:
    try:
        written = version.manifest().scores
    except (BadManifest, OSError):
        return {}
    return {name: float(value) for name, value in written.items() if is_number(value)}


def _set(settings: Settings, chosen: tuple[Version, ...]) -> VersionSet:
    rest = replace(settings, replicas=1, host="", port=0).to_json()
    own = _stamp(Path(settings.predict)) if settings.predict else ()
    return VersionSet(chosen, (rest, own, *((one.number, *_stamp(one.path)) for one in chosen)))


def _stamp(path: Path) -> tuple[int, ...]:
    """Changes when the version is rewritten in place."""
    stamps: list[int] = []
    for file in (path, path / model_manifest.FILE_NAME, path / SAVED_MODEL):
        try:
            found = file.stat()
        except OSError:
            continue
        stamps += [found.st_ino, found.st_mtime_ns]
    return tuple(stamps)
