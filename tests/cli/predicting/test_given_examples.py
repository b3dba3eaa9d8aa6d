"""What a user types, names or pipes becomes examples, or a sentence that says what the model expects."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oarlock.cli.predicting.given_examples import ModelInput, read
from oarlock.errors import OarlockError

PAIR = [ModelInput("x", "float32", (2,))]
TEXT = [ModelInput("body", "string", ())]
TWO = [ModelInput("a", "float32", ()), ModelInput("b", "int32", ())]
GRAY = [ModelInput("image", "uint8", (4, 6, 1))]


def _values(words: list[str], inputs: list[ModelInput]) -> list[dict[str, Any]]:
    return [dict(one.values) for one in read(words, inputs)]


@pytest.mark.parametrize(
    ("inputs", "words", "expected"),
    [
        (PAIR, ["[1, 2]", "[3, 4]"], [{"x": [1, 2]}, {"x": [3, 4]}]),
        (PAIR, ['{"x": [1, 2]}'], [{"x": [1, 2]}]),
        (TWO, ['{"a": 1.5, "b": 2}'], [{"a": 1.5, "b": 2}]),
        (TEXT, ["it crashes", "[not JSON]"], [{"body": "it crashes"}, {"body": "[not JSON]"}]),
        (TEXT, ['{"body": "with\\nlines"}'], [{"body": "with\nlines"}]),
    ],
)
def test_a_word_is_the_value_itself(
    inputs: list[ModelInput], words: list[str], expected: list[dict[str, Any]]
) -> None:
    assert _values(words, inputs) == expected


@pytest.mark.parametrize(
    ("name", "content", "inputs", "expected"),
    [
        ("rows.jsonl", "[1, 2]\n\n[3, 4]\n", PAIR, [{"x": [1, 2]}, {"x": [3, 4]}]),
        ("rows.json", "[[1, 2], [3, 4]]", PAIR, [{"x": [1, 2]}, {"x": [3, 4]}]),
        ("one.json", "[1, 2]", PAIR, [{"x": [1, 2]}]),
        ("request.json", '{"instances": [[1, 2]]}', PAIR, [{"x": [1, 2]}]),
        ("two.json", '[{"a": 1, "b": 2}]', TWO, [{"a": 1, "b": 2}]),
        ("lines.csv", "first\nsecond\n", TEXT, [{"body": "first"}, {"body": "second"}]),
        ("page.txt", "all of it\nis one", TEXT, [{"body": "all of it\nis one"}]),
    ],
)
def test_a_file_has_examples(
    tmp_path: Path, name: str, content: str, inputs: list[ModelInput], expected: list[dict[str, Any]]
) -> None:
    (tmp_path / name).write_text(content)
    assert _values([str(tmp_path / name)], inputs) == expected


def test_an_array_has_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    np.save(tmp_path / "row.npy", np.array([5.0, 6.0]))
    assert _values([str(tmp_path / "rows.npy"), str(tmp_path / "row.npy")], PAIR) == [
        {"x": [1, 2]},
        {"x": [3, 4]},
        {"x": [5, 6]},
    ]


def test_a_picture_gets_the_size_and_range_of_the_input(tmp_path: Path) -> None:
    path = tmp_path / "white.png"
    Image.new("RGB", (60, 40), "white").save(path)
    [gray] = _values([str(path)], GRAY)
    assert np.array_equal(gray["image"], np.full((4, 6, 1), 255))
    [colors] = _values([str(path)], [ModelInput("image", "float32", (None, None, 3))])
    assert np.array_equal(colors["image"], np.ones((40, 60, 3)))
    [flat] = _values([str(path)], [ModelInput("image", "uint8", (4, 6))])
    assert np.array_equal(flat["image"], np.full((4, 6), 255))


def test_a_folder_has_the_examples_of_its_files_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text("[2, 2]")
    (tmp_path / "a.jsonl").write_text("[1, 1]")
    (tmp_path / ".hidden").write_text("no")
    found = list(read([str(tmp_path)], PAIR))
    assert [one.source for one in found] == [f"{tmp_path}/a.jsonl:1", f"{tmp_path}/b.jsonl:1"]


def test_lines_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("[1, 2]\n[3, 4]\n"))
    found = list(read([], PAIR))
    assert [one.source for one in found] == ["standard input:1", "standard input:2"]


@pytest.mark.parametrize(
    ("inputs", "word", "sentence"),
    [
        (
            PAIR,
            "missing.png",
            r"'missing.png' is neither a file nor JSON; the model expects x \(float32, 2\)",
        ),
        (PAIR, '{"y": 1}', r"expected a JSON object with x \(float32, 2\)"),
        (TWO, "[1, 2]", r"expected a JSON object with a \(float32\), b \(int32\)"),
        (TEXT, '{"title": "a"}', r"expected a JSON object with body \(string\)"),
    ],
)
def test_what_fits_no_input_is_refused(inputs: list[ModelInput], word: str, sentence: str) -> None:
    with pytest.raises(OarlockError, match=sentence):
        list(read([word], inputs))


@pytest.mark.parametrize(
    ("name", "content", "inputs", "sentence"),
    [
        ("bad.jsonl", b"[1, 2]\noops\n", PAIR, "bad.jsonl:2 is not JSON"),
        ("bad.json", b"{", PAIR, "bad.json is not JSON"),
        ("bytes.bin", b"\xff\xfe", PAIR, "bytes.bin is not text"),
        ("no.png", b"no", GRAY, "no.png is not a picture"),
        ("no.npy", b"no", PAIR, "no.npy is not an array"),
        ("a.png", b"", PAIR, r"a.png is a picture, and the model expects x \(float32, 2\)"),
        ("a.npy", b"", TWO, "a.npy has one value, and the model expects"),
    ],
)
def test_a_file_that_makes_no_sense_is_named(
    tmp_path: Path, name: str, content: bytes, inputs: list[ModelInput], sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OarlockError, match=sentence):
        list(read([str(tmp_path / name)], inputs))


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OarlockError, match="has no files"):
        list(read([str(tmp_path)], PAIR))


def test_a_long_value_is_no_name_of_a_file() -> None:
    row = json.dumps([0.25] * 5000)
    assert _values([row], [ModelInput("x", "float32", (None,))]) == [{"x": [0.25] * 5000}]
