"""Programs that tests need and Debian has."""

from __future__ import annotations

import os
import shutil
import subprocess


def program_of(package: str, *names: str) -> str | None:
    """The path of the program with the name of the package, or of one of these. CI installs it, if it may."""
    found = next(filter(None, map(shutil.which, (package, *names))), None)
    if found is None and os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        words = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
        subprocess.run(["apt-get", "update", "-q"], check=False, capture_output=True, timeout=600)
        subprocess.run(words, check=False, capture_output=True, timeout=1200)
        found = shutil.which(package)
    return found
