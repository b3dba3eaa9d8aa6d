"""What a text model's predict.py may give, and what is said of anything else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oarlock.models.model_manifest import Manifest
from oarlock.models.model_versions import Version, new_version, versions
from oarlock.serving.generation.text_model import TextModel
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.serving.server import model_loading

PROGRAM = """
import numpy as np

def load(folder):
    return Letters((folder / "letters.txt").read_text())

class Letters:
    slots, vocabulary, context = 2, 128, 8

    def __init__(self, letters):
        self.letters = letters

    def encode(self, text):
        return [ord(letter) for letter in text] or [0]

    def decode(self, token):
        return bytes([token])

    def start(self, slot, tokens):
        return self.step([slot], [0], tokens[-1:])[0]

    def step(self, slots, positions, tokens):
        scores = np.zeros((len(tokens), self.vocabulary), np.float32)
        for row, token in zip(scores, tokens):
            row[ord(self.letters[(self.letters.find(chr(token)) + 1) % len(self.letters)])] = 1000
        return scores
"""


def version(folder: Path, program: str) -> Version:
    with new_version(folder) as draft:
        (draft / "predict.py").write_text(program)
        (draft / "letters.txt").write_text("abc")
        manifest = Manifest("python", (), (), kind="completion", entry="predict.py")
        (draft / "oarlock.json").write_bytes(manifest.to_json())
    return versions(folder)[-1]


def test_a_version_is_loaded_and_writes(tmp_path: Path) -> None:
    found = model_loading.load(version(tmp_path, PROGRAM))
    assert isinstance(found, TextModel)
    try:
        texts = found.run({"prompt": np.array(["b"], dtype=object)})["completion"]
    finally:
        found.close()
    assert texts[0].startswith("cabcabc")


def test_another_predict_may_take_its_place(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(PROGRAM.replace("slots, vocabulary", "vocabulary, slots").replace("2, 128", "128, 5"))
    found = model_loading.load(version(tmp_path / "model", PROGRAM), other)
    found.close()
    assert found.form == "text, 5 at a time"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("def step", "def stop", r"load\(\) gives a Letters without step\(\): a text model needs it"),
        ("slots, vocabulary, context = 2, 128, 8", "", "without slots, vocabulary, context: a text model"),
        ("= 2, 128, 8", "= 0, 128, 8", "slots is 0; it has to be 1 or more"),
        ("letters.txt", "missing.txt", r"load\(\) fails: FileNotFoundError"),
        ("def load", "def lode", r"has no function load\(folder\)"),
        ("import numpy", "import a_package_that_is_not_there", "install a_package_that_is_not_there"),
        ("1000", "'x'", "The model fails at its first text: ValueError"),
    ],
)
def test_anything_else_gets_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in PROGRAM
    with pytest.raises(ModelError, match=sentence) as refused:
        model_loading.load(version(tmp_path, PROGRAM.replace(old, new)))
    assert str(refused.value).startswith("version 1")
