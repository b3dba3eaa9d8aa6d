"""Explain a failure on a cluster by a file that is on this machine and was not sent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from oarlock.agent.protocol.pod_paths import program_folder
from oarlock.program import folder_scan
from oarlock.records.run_folder import RunFolder
from oarlock.system.safe_names import stays_inside
from oarlock.wording import printable

_MISSES = re.compile(r"(?i)no such file|not found|not exist|no module named|(cannot|unable to) open")
_MODULE = re.compile(r"No module named '?([\w.]+)")
_NAMES = re.compile(r"'([^'\n]{1,1000})'|\"([^\"\n]{1,1000})\"|([^\s'\"]{1,1000})")
_MOST = 200  # names in a text


def explain(run: RunFolder, text: str) -> list[str]:
    """Return lines about the first file that the text of a failure names and that was not sent; or none."""
    folder = run.sent_from
    if folder is None or not _MISSES.search(text):
        return []
    for name in dict.fromkeys(_candidates(text, program_folder(run.name))):
        try:
            why = folder_scan.left_behind(folder, name)
        except OSError:
            continue
        if why is not None:
            where, line = printable(str(folder)), printable(f"!/{name}")
            return [
                f"{printable(name)} is in {where} and was not sent: {why}",
                f"  add the line {line} to {where}/.oarlockignore, or keep data in a volume or a bucket",
            ]
    return []


def _candidates(text: str, program: str) -> Iterator[str]:
    """Names relative to the program's folder that the text may mean."""
    for module in _MODULE.findall(text)[:_MOST]:
        path = module.replace(".", "/")
        yield from (f"{path}.py", path, f"{path.partition('/')[0]}.py")
    for found in _NAMES.findall(text)[:_MOST]:
        name = os.path.normpath("".join(found).lstrip("([<").rstrip(".,:;)]>")).removeprefix(f"{program}/")
        if stays_inside(name):
            yield name
