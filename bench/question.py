"""A question, its answer as a table, and the command line that all scripts here share.

Every row holds our figures and a peer's, taken in turns in one run, and says whether the target is met.
The table is Markdown, so that docs/measurements.md shows what was printed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from bystanders import Bystanders

import oarlock


@dataclass(frozen=True)
class Target:
    limit: float
    of: str = "ratio"  # or "ours", for a figure that needs no peer
    at_least: bool = False

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.limit:g}" + ("x" if self.of == "ratio" else "")


@dataclass(frozen=True)
class Row:
    what: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float] = ()
    against: str = ""  # which peer
    target: Target | None = None
    ratios: Sequence[float] = ()  # of each pair, where pairs tell more than the two medians
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.ratios:
            return median(self.ratios)
        return median(self.ours) / median(self.peer) if self.ours and self.peer else None

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        figure = self.ratio if self.target.of == "ratio" else median(self.ours)
        if figure is None:
            return False
        return figure >= self.target.limit if self.target.at_least else figure <= self.target.limit

    def to_data(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": list(self.ours),
            "peer": list(self.peer),
            "against": self.against,
            "ratio": self.ratio,
            "ratios": list(self.ratios),
            "target": str(self.target) if self.target else None,
            "met": self.is_met,
            "note": self.note,
        }


@dataclass(frozen=True)
class Question:
    name: str
    title: str
    measure: Callable[[int], list[Row]]  # given how often
    repeats: int


def main(questions: Sequence[Question], description: str | None) -> NoReturn:
    """Ask, print, and leave with 1 if a target is missed."""
    given = _arguments(questions, description)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through every `finally` on the way out
    tables = sys.stderr if given.json else sys.stdout
    # pip compiles what it installs. With this variable, what nobody has compiled is compiled again by every
    # process: a checkout's run starts 0.05 s later, and torch takes 2.5 s longer.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(oarlock.__file__).parent, quiet=1)
    answers: dict[str, list[Row]] = {}
    for question in questions:
        if given.only in (None, question.name):
            bystanders, began = Bystanders(), time.monotonic()
            rows = answers[question.name] = question.measure(given.repeats or question.repeats)
            took = f"{time.monotonic() - began:.0f} s; {bystanders}"
            print(f"\n### {question.title}\n", *_table(rows), f"\n{took}", sep="\n", file=tables, flush=True)
    if given.json:
        print(json.dumps({name: [row.to_data() for row in rows] for name, rows in answers.items()}, indent=1))
    sys.exit(any(row.is_met is False for rows in answers.values() for row in rows))


def progress(text: str) -> None:
    """For the person who waits: a line that the next one replaces; for a log, a line."""
    begin, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{begin}{text}", end=end, file=sys.stderr, flush=True)


def _arguments(questions: Sequence[Question], description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--only", choices=[question.name for question in questions], help="this question alone"
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="how often each side runs")
    parser.add_argument("--json", action="store_true", help="every figure on stdout; the tables go to stderr")
    return parser.parse_args()


def _table(rows: Iterable[Row]) -> list[str]:
    head = ["", "ours", "peer", "against", "ratio", "target", "met", "note"]
    return [_line(head), _line(["---"] * len(head)), *(_line(_cells(row)) for row in rows)]


def _cells(row: Row) -> list[str]:
    ratio = _figures(row.ratios) if row.ratios else f"{row.ratio:.2f}" if row.ratio else ""
    target = str(row.target) if row.target else ""
    met = {True: "yes", False: "NO", None: ""}[row.is_met]
    ours, peer = _figures(row.ours, row.unit), _figures(row.peer, row.unit)
    return [row.what, ours, peer, row.against, ratio, target, met, row.note]


def _figures(figures: Sequence[float], unit: str = "") -> str:
    """The median, and in brackets the least and the greatest."""
    if not figures:
        return ""
    spread = f" ({_number(min(figures))} to {_number(max(figures))})" if len(figures) > 1 else ""
    return f"**{_number(median(figures))}** {unit}{spread}".replace("  ", " ").strip()


def _number(figure: float) -> str:
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
