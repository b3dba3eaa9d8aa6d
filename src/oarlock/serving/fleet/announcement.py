"""What a server announces once it answers: its address, and a request that works.

The supervisor writes it beside its settings file, for the client that waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oarlock.models import model_manifest
from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.run.typed import build
from oarlock.serving.settings import Settings
from oarlock.system.atomic_file import write_whole

_MOST = 512  # numbers in an example; Python generates a larger one
_SUFFIX = ".ready"


@dataclass(frozen=True)
class Announcement:
    """A server that answers."""

    url: str
    name: str  # of the model
    version: int
    form: str
    curl: str
    forward: str = ""  # a command that must keep running if the client's machine cannot reach the server
    outside: str = ""  # the URL for all other clients, if it differs

    def lines(self) -> list[str]:
        """The announcement as lines of text."""
        what = f"{self.name}, version {self.version} ({self.form})"
        more = [f"from outside: {self.outside}"] if self.outside else []
        more += [f"from this machine, while this runs: {self.forward}"] if self.forward else []
        return [f"serving {what} at {self.url}", *more, f"try: {self.curl}"]


def of(settings: Settings, url: str, served: Mapping[str, Any]) -> Announcement:
    """Return the announcement of a server; `served` is one version as a replica describes it."""
    manifest = model_manifest.read(json.dumps(served["manifest"]).encode())
    number, form = int(served["number"]), str(served["form"])
    return Announcement(url, settings.name, number, form, curl(settings, url, manifest))


def path_for(settings_file: Path) -> Path:
    """The path of the announcement of the server with these settings."""
    return settings_file.with_name(settings_file.stem + _SUFFIX)


def write(path: Path, announcement: Announcement) -> None:
    """Write the file atomically."""
    write_whole(path, json.dumps(asdict(announcement)).encode())


def read(path: Path) -> Announcement | None:
    """Return the announcement; None if there is none yet."""
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError):
        return None


def parse(content: bytes) -> Announcement:
    """Return the announcement in a file. Raises ValueError."""
    return build(Announcement, json.loads(content))


def curl(settings: Settings, url: str, manifest: Manifest) -> str:
    """Return a command that the server answers."""
    words = ["curl -s"]
    if settings.tls_cert:
        words.append(f"--cacert {settings.tls_cert}")
    if settings.token_file:
        words.append(f'-H "Authorization: Bearer $(cat {settings.token_file})"')
    if manifest.kind == "completion":
        asked = json.dumps({"prompt": "The", "max_tokens": 100, "stream": True})
        return " ".join([*words, f"-N {url}/v1/completions", f"-d '{asked}'"])
    where = f"{url}/v1/models/{settings.name}:predict"
    body = example(manifest)
    if body is None:
        return _from_python(words, where, manifest)
    return " ".join([*words, where, f"-d '{json.dumps(body)}'"])


def example(manifest: Manifest) -> dict[str, Any] | None:
    """A request of one row that fits the manifest; None if it is too long to show."""
    if sum(_size(one) for one in manifest.inputs) > _MOST:
        return None
    return {"inputs": {one.name: _filled(one.dtype, _shape(one)) for one in manifest.inputs}}


def _from_python(words: list[str], where: str, manifest: Manifest) -> str:
    """In the shell it would be screens of zeros, so Python writes them."""
    inputs = ", ".join(f'"{one.name}": {_expression(one)}' for one in manifest.inputs)
    script = f'import json; print(json.dumps({{"inputs": {{{inputs}}}}}))'
    return " ".join([f"python3 -c '{script}' |", *words, where, "-d @-"])


def _expression(tensor: Tensor) -> str:
    text = {"string": '"a"', "bool": "False"}.get(tensor.dtype, "0")
    for size in reversed(_shape(tensor)):
        text = f"[{text}] * {size}" if size != 1 else f"[{text}]"
    return text


def _filled(dtype: str, shape: list[int]) -> Any:
    if not shape:
        return {"string": "a", "bool": False}.get(dtype, 0)
    return [_filled(dtype, shape[1:]) for _ in range(shape[0])]


def _shape(tensor: Tensor) -> list[int]:
    return [1 if size is None else size for size in tensor.shape]


def _size(tensor: Tensor) -> int:
    size = 1
    for one in _shape(tensor):
        size *= one
    return size
