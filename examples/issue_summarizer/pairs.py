"""Where pairs of a body and its title come from: a CSV file, or what is installed on this machine.

Installed packages have tens of thousands of texts with a heading that a person wrote: a docstring has a
summary line; a section of a package's description or changelog has a title. The title is cut off, so the
body does not contain it. Packages are only read, never imported.
"""

from __future__ import annotations

import csv
import hashlib
import inspect
import re
import shutil
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SHORTEST, LONGEST = 3, 14  # words of a title
LEAST = 8  # words of a body
SKIPPED = {
    "__pycache__",
    "node_modules",
    "test",
    "tests",
    "testing",
    "idlelib",
    "lib2to3",
    "include",
    "share",
}

# A text in triple quotes at the start of a file, or on its own after a line that ends with a colon.
DOCSTRING = re.compile(r"(?:\A|:[ \t]*(?:#[^\n]*)?\n)\s*[rR]?(\"{3}|'{3})(.+?)\1", re.DOTALL)


@dataclass(frozen=True, order=True)
class Pair:
    body: str
    title: str

    def key(self) -> bytes:
        """Equal for bodies that differ only in case, spaces or punctuation, or after their first 24 words:
        copies of one text must not be both trained on and tested."""
        words = re.findall(r"\w+", self.body.lower())[:24]
        return hashlib.sha256(" ".join(words).encode()).digest()


def cleaned(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs that are fit to learn from, each body once, in the order of their keys: a shuffle that is
    the same everywhere."""
    found: dict[bytes, Pair] = {}
    for pair in pairs:
        title = " ".join(pair.title.split()).rstrip(".:")
        body = " ".join(pair.body.split())
        words = re.findall(r"\w+", title)
        if not SHORTEST <= len(words) <= LONGEST or len(re.findall(r"\w+", body)) < LEAST:
            continue
        if title.lower() in body.lower():  # nothing to summarize: it could be copied
            continue
        made = Pair(body, title)
        found[made.key()] = min(made, found.get(made.key(), made))  # the smaller one, whatever the order
    return [found[key] for key in sorted(found)]


def part_of(pair: Pair, held_out: float) -> str:
    """By the body alone. `held_out` is the share of pairs for the test; validation gets as many."""
    number = int.from_bytes(pair.key()[-4:], "big") / 2**32
    return "test" if number < held_out else "validation" if number < 2 * held_out else "train"


def installed(folders: Iterable[Path] | None = None) -> Iterator[Pair]:
    """From the standard library and the installed packages."""
    paths = sysconfig.get_paths()
    for root in folders or sorted({Path(paths[name]) for name in ("stdlib", "purelib", "platlib")}):
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root).parts
            if SKIPPED.intersection(inside) or (root == Path(paths["stdlib"]) and "site-packages" in inside):
                continue
            if path.suffix == ".py":
                yield from docstrings(path)
            elif path.name == "METADATA" or path.suffix in (".md", ".rst"):
                yield from sections(path)


def docstrings(path: Path) -> Iterator[Pair]:
    """Summary line and the rest, for every module, class and function that has both. A pattern finds what
    `ast` would, except for a handful, in a tenth of the time."""
    for _, said in DOCSTRING.findall(path.read_text("utf-8", errors="replace")):
        title, _, body = inspect.cleandoc(said).partition("\n\n")
        if body:
            yield Pair(body, title)


def sections(path: Path) -> Iterator[Pair]:
    """Headings and the text below them, from a package's description, readme or changelog in Markdown."""
    text = path.read_text("utf-8", errors="replace")
    pieces = re.split(r"^#{1,4} +(.+?)#*$", text, flags=re.MULTILINE)
    for title, body in zip(pieces[1::2], pieces[2::2]):
        yield Pair(body, title)


def from_csv(file: Path, columns: Sequence[str]) -> list[Pair]:
    """The rows of a CSV file with a header. `columns` names the columns of title and body."""
    csv.field_size_limit(2**31 - 1)
    with open(file, newline="", encoding="utf-8", errors="replace") as lines:
        rows = csv.DictReader(lines)
        for column in columns:
            if column not in (rows.fieldnames or ()):
                raise SystemExit(
                    f"{file} has no column {column!r}; it has {', '.join(rows.fieldnames or ['none'])}.\n"
                    "Name the columns of title and body: --columns TITLE,BODY"
                )
        title, body = columns
        return [Pair(row[body] or "", row[title] or "") for row in rows]


def fetch(source: str, folder: Path) -> Path:
    """The file at `source`: a path is used directly, a URL is downloaded into `folder`."""
    if not re.match(r"https?://", source):
        if not Path(source).is_file():
            raise SystemExit(f"There is no file {source}. --source takes a CSV file by path or URL.")
        return Path(source)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pairs.csv"
    partial = path.with_suffix(".partial")
    try:
        with urllib.request.urlopen(source, timeout=60) as answer, open(partial, "wb") as file:
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, OSError) as error:
        raise SystemExit(f"{source} could not be downloaded: {error}") from None
    return partial.rename(path)
