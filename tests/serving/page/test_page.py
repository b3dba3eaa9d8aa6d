"""The page in a real browser: what a person draws, types or chooses is what the model gets and answers."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.page import page_files
from oarlock.serving.settings import Settings
from tests.support.browser import Browser, Page, browser
from tests.support.http_calls import get
from tests.support.served_models import Array, Computed, ServedModels, calculator, echo, serving, writer
from tests.support.text_generators import DEADLINE, Gated
from tests.support.waiting import eventually

SHAPES = ("bar", "dash", "ring")
KEPT = os.environ.get("OARLOCK_SCREENSHOTS")  # a folder: leave pictures of the page there


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(KEPT) if KEPT else tmp_path
    folder.mkdir(exist_ok=True)
    return folder


def templates() -> Array:
    """What the three shapes look like, centered."""
    y, x = np.mgrid[0:28, 0:28] - 13.5
    bar = (abs(x) < 1.5) & (abs(y) < 10)
    ring = abs(np.hypot(x, y) - 9) < 1.5
    return np.stack([bar, bar.T, ring]).reshape(3, -1).astype("float32")


def shape_model(shape: tuple[int | None, ...] = (None, 28, 28), dtype: str = "float32") -> Computed:
    """Which of the three shapes is it? By the angle to each of them."""
    known = templates() / np.linalg.norm(templates(), axis=1, keepdims=True)

    def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
        image = inputs["image"].astype("float32")
        if image.ndim == 4:
            image = image.mean(axis=3 if image.shape[3] <= 3 else 1)
        flat = image.reshape(len(image), -1)
        angles = flat @ known.T / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-9)
        scores = np.exp(10 * angles)
        return {"scores": scores / scores.sum(axis=1, keepdims=True)}

    manifest = Manifest(
        format="python",
        kind="image",
        inputs=(Tensor("image", dtype, shape),),
        outputs=(Tensor("scores", "float32", (None, 3)),),
        labels=SHAPES,
        run="shapes-1",
        step=300,
        scores={"accuracy": 0.98765},
    )
    return Computed(manifest, compute)


def opened(page: Page) -> None:
    page.until("document.getElementById('model')?.hidden === false", "page with the model")


def answered(page: Page) -> None:
    page.until("document.getElementById('time').textContent", "answer")


def ring(x: float = 0.4, y: float = 0.6, radius: float = 0.2) -> list[tuple[float, float]]:
    turns = np.linspace(0, 2 * np.pi, 40)
    return [(x + radius * float(np.cos(turn)), y + radius * float(np.sin(turn))) for turn in turns]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((None, 28, 28), "float32"),
        ((None, 28, 28, 1), "uint8"),
        ((None, 3, 28, 28), "float32"),
        ((None, 784), "float32"),
    ],
)
def test_a_drawing_is_recognized(
    chromium: Browser, pictures: Path, shape: tuple[int | None, ...], dtype: str
) -> None:
    model = shape_model(shape, dtype)
    seen: list[Array] = []
    compute = model.compute
    model.compute = lambda inputs: seen.append(inputs["image"]) or compute(inputs)  # type: ignore[func-returns-value]
    with (
        serving(ServedModels([model], name="shapes")) as port,
        chromium.page(f"http://127.0.0.1:{port}/") as page,
    ):
        opened(page)
        assert page.text("#name") == "shapes"
        assert page.text("#about") == "version 1 · NumPy · from shapes-1 · step 300 · accuracy 0.9877"
        for strokes, name in (
            ([ring()], "ring"),
            ([[(0.2, 0.1), (0.2, 0.8)]], "bar"),
            ([[(0.1, 0.7), (0.9, 0.7)]], "dash"),
        ):
            page.click("#clear")
            page.draw("#drawing", strokes)
            page.until(f"document.getElementById('best')?.textContent === '{name}'", name)
            page.screenshot(pictures / f"drawn-{name}-{len(shape)}-{dtype}.png")
        assert page.text(".bars .name") == "dash"
        assert page.text(".bars .value").endswith(" %")
        assert page.text("#time").endswith(" ms")
        brightest = 255 if dtype == "uint8" else 1
        assert brightest / 2 < seen[-1].max() <= brightest
        assert not page.complaints


def test_an_answer_is_busy_until_the_last_question_is_answered(chromium: Browser) -> None:
    model, gate = shape_model(), threading.Event()
    compute = model.compute

    def slow(inputs: Mapping[str, Array]) -> dict[str, Array]:
        assert gate.wait(60)
        return compute(inputs)

    model.compute = slow
    with (
        serving(ServedModels([model], name="shapes")) as port,
        chromium.page(f"http://127.0.0.1:{port}/") as page,
    ):
        opened(page)
        page.draw("#drawing", [[(0.2, 0.1), (0.2, 0.8)], ring()])
        assert page.evaluate("document.getElementById('answer').ariaBusy") == "true"
        gate.set()
        page.until("document.getElementById('answer').ariaBusy === 'false'", "answer")
        assert page.text("#time")


def test_an_image_file_is_read(chromium: Browser, tmp_path: Path) -> None:
    file = tmp_path / "ring.png"
    file.write_bytes(png(templates()[2].reshape(28, 28)))
    with (
        serving(ServedModels([shape_model()], name="shapes")) as port,
        chromium.page(f"http://127.0.0.1:{port}/") as page,
    ):
        opened(page)
        page.choose_file("#file", file)
        page.until("document.getElementById('best')?.textContent === 'ring'", "recognized file")
        assert not page.complaints


def test_the_lines_to_copy_give_the_same_answer(chromium: Browser) -> None:
    with (
        serving(ServedModels([shape_model()], name="shapes")) as port,
        chromium.page(f"http://127.0.0.1:{port}/") as page,
    ):
        opened(page)
        page.draw("#drawing", [ring()])
        answered(page)
        for command in (["sh", "-c", page.text("#curl")], [sys.executable, "-c", page.text("#python")]):
            if not shutil.which("curl") and command[0] == "sh":
                continue
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            [scores] = json.loads(done.stdout.replace("'", '"'))["predictions"]
            assert int(np.argmax(scores)) == SHAPES.index("ring")


def test_text_goes_in_and_comes_out(chromium: Browser, pictures: Path) -> None:
    model = echo("string", (None,))
    model.compute = lambda inputs: {"y": np.array([str(one).upper() for one in inputs["x"]], "O")}
    with serving(ServedModels([model])) as port, chromium.page(f"http://127.0.0.1:{port}/") as page:
        opened(page)
        page.write("textarea", 'it\'s\n<b>small</b> "ünïcode"')
        page.click("button.main")
        answered(page)
        assert page.text("#answer") == 'IT\'S\n<B>SMALL</B> "ÜNÏCODE"'
        page.screenshot(pictures / "text.png")
        for command in (["sh", "-c", page.text("#curl")], [sys.executable, "-c", page.text("#python")]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert "SMALL" in done.stdout, done.stderr


def test_a_form_is_made_from_the_inputs(chromium: Browser, pictures: Path) -> None:
    with serving(ServedModels([calculator()])) as port, chromium.page(f"http://127.0.0.1:{port}/") as page:
        opened(page)
        for name, value in (("a-0", "1.5"), ("a-1", "2"), ("b-0", "4")):
            page.write(f"input[name={name}]", value)
        page.click("button.main")
        answered(page)
        assert page.text("#answer").split() == ["quotient", "0.375", "0.5", "sum", "7"]
        page.screenshot(pictures / "form.png")
        page.write("input[name=b-0]", "0")
        page.click("button.main")
        page.until("document.getElementById('answer').innerText.includes('Infinity')", "infinity")
        page.write("input[name=b-0]", "-3")
        page.click("button.main")
        page.until("!document.getElementById('problem').hidden", "sentence")
        assert page.text("#problem") == "the model refuses this: b is negative"


def test_a_completion_streams_and_stops(chromium: Browser, pictures: Path) -> None:
    generator = Gated(context=4096)
    generator.is_held = False
    model = writer(generator)
    text = model.text
    assert text is not None
    text.serve(1e6, DEADLINE, lambda done: None)
    generator.is_held = True
    try:
        with serving(ServedModels([model])) as port, chromium.page(f"http://127.0.0.1:{port}/") as page:
            opened(page)
            page.write("#prompt", "once")
            page.write("#heat", "0")
            page.click("button.main")
            generator.allow(12)
            first = page.until("document.querySelector('#answer .text')?.textContent", "first words")
            page.screenshot(pictures / "completion.png")
            generator.allow(12)
            longer = f"document.querySelector('#answer .text').textContent.length > {len(first)}"
            page.until(longer, "more words")
            page.click("#stop")
            page.until("document.getElementById('stop').disabled", "stopped stream")
            assert page.evaluate("document.getElementById('problem').hidden")
            generator.allow(100_000)
            eventually(lambda: text.scheduler.load == (0, 0), "free slots")
    finally:
        generator.allow(100_000)
        text.close()


def test_a_token_is_asked_for(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    settings = replace(Settings("m", "models"), token_file=str(tmp_path / "token"))
    with (
        serving(ServedModels([calculator()], settings=settings)) as port,
        chromium.page(f"http://127.0.0.1:{port}/") as page,
    ):
        page.until("document.getElementById('login')?.hidden === false", "question for the token")
        page.write("#token", "wrong")
        page.click("#login button")
        page.until("document.getElementById('login')?.hidden === false", "question for the token")
        page.write("#token", "secret")
        page.click("#login button")
        opened(page)
        page.click("button.main")
        answered(page)
        assert "$TOKEN" in page.text("#curl")
        assert "secret" not in page.text("body")


def test_the_page_loads_nothing_from_elsewhere() -> None:
    with serving(ServedModels([calculator()])) as port:
        reply = get(port, "/")
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        for name in page_files.NAMES:
            content = page_files.read(name)[0].decode()
            assert "http://" not in content
            assert "https://" not in content
            if name != "index.html":
                assert get(port, f"/page/{name}").body.decode() == content
                assert f"/page/{name}" in "".join(
                    page_files.read(other)[0].decode() for other in page_files.NAMES
                )
        assert get(port, "/page/other.js").status == 404


def png(image: Array) -> bytes:
    """A gray image as a PNG file."""
    rows = b"".join(b"\0" + bytes((row * 255).astype("uint8")) for row in image)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
