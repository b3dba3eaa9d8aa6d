"""The whole way of the MNIST example: trained, exported, served; a digit drawn on the page is recognized."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.browser import browser
from tests.support.model_servers import model_server

EXAMPLE = Path(__file__).parents[2] / "examples" / "mnist_keras"
Stroke = list[tuple[float, float]]

pytestmark = pytest.mark.slow

# Every stroke is a question: the answer to the first of two must not be taken for the digit's.
ANSWERED = (
    "document.getElementById('time').textContent && document.getElementById('answer').ariaBusy === 'false'"
)


def arc(x: float, y: float, width: float, height: float, begin: float, end: float) -> Stroke:
    turns = np.radians(np.linspace(begin, end, 30))
    return [(x + width * float(np.cos(turn)), y + height * float(np.sin(turn))) for turn in turns]


# As strokes of a mouse, in shares of the canvas.
DIGITS: dict[str, list[Stroke]] = {
    "0": [arc(0.5, 0.5, 0.22, 0.32, -90, 270)],
    "1": [[(0.4, 0.28), (0.52, 0.15), (0.52, 0.85)]],
    "2": [[*arc(0.5, 0.32, 0.2, 0.17, -190, 30), (0.3, 0.83), (0.75, 0.83)]],
    "3": [[*arc(0.48, 0.32, 0.2, 0.16, -150, 85), *arc(0.48, 0.66, 0.22, 0.18, -85, 150)]],
    "4": [[(0.35, 0.15), (0.28, 0.55), (0.75, 0.55)], [(0.65, 0.2), (0.62, 0.9)]],
    "5": [[(0.7, 0.17), (0.36, 0.17), (0.34, 0.45), *arc(0.48, 0.62, 0.22, 0.2, -110, 150)]],
    "7": [[(0.28, 0.2), (0.72, 0.2), (0.45, 0.85)]],
    "8": [[*arc(0.5, 0.33, 0.16, 0.16, 90, -270), *arc(0.5, 0.67, 0.2, 0.18, -90, 270)]],
}


def test_a_digit_is_drawn_and_recognized(tmp_path: Path) -> None:
    with browser(tmp_path) as chromium:
        folders = {"MODEL_DIR": str(tmp_path / "model"), "DATA_DIR": str(tmp_path / "data")}
        trained = subprocess.run(
            [sys.executable, str(EXAMPLE / "train.py"), "--epochs", "2"],
            cwd=tmp_path,
            env={**os.environ, **folders, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert trained.returncode == 0, trained.stderr
        with (
            model_server(tmp_path / "model", tmp_path, name="mnist") as server,
            chromium.page(f"{server.url}/") as page,
        ):
            page.until("document.getElementById('model')?.hidden === false", "page with the model")
            found = {}
            for digit, strokes in DIGITS.items():
                page.click("#clear")
                page.evaluate("document.getElementById('time').textContent = ''")
                page.draw("#drawing", strokes)
                page.until(ANSWERED, "answer to the last stroke")
                found[digit] = page.text("#best")
            right = [digit for digit, best in found.items() if digit == best]
            assert len(right) >= len(DIGITS) - 2, found
            assert not page.complaints
