"""Digits as somebody draws them on the page of a served model, and what the model takes them for."""

from __future__ import annotations

import numpy as np

from tests.support.browser import Page

Stroke = list[tuple[float, float]]

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


def recognized(page: Page) -> dict[str, str]:
    """Each digit, drawn on the page, and the answer."""
    page.until("document.getElementById('model')?.hidden === false", "page with the model")
    found = {}
    for digit, strokes in DIGITS.items():
        page.click("#clear")
        page.evaluate("document.getElementById('time').textContent = ''")
        page.draw("#drawing", strokes)
        page.until(ANSWERED, "answer to the last stroke")
        found[digit] = page.text("#best")
    return found
