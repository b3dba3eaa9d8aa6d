"""The issue summarizer, by the real `oarlock run`: ingest, training, scores, export.

A few hundred pairs out of the standard library and a tiny network; what it learns from all takes minutes and
is for the soak.
"""

from __future__ import annotations

import ast
import csv
import functools
import http.server
import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.browser import browser
from tests.support.commands import home_in, printed_by
from tests.support.loose_modules import loaded
from tests.support.model_servers import model_server
from tests.support.soaking import only_in_soak

EXAMPLE = Path(__file__).parents[2] / "examples" / "issue_summarizer"
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
DEADLINE = 280
STEPS = 20
COLUMNS = ["issue_title", "body"]
TINY = ["--width", "16", "--depth", "1"]
BODY = "Raised by 'frobnicate' if the given path is not a folder. The path has to be absolute."

pytestmark = pytest.mark.slow

pairs: Any = loaded(EXAMPLE / "pairs.py")
scores: Any = loaded(EXAMPLE / "scores.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what the runs leave, with a CSV file as the recipe has it."""
    folder = tmp_path_factory.mktemp("issue_summarizer")
    (EXAMPLE / "__pycache__").mkdir(exist_ok=True)  # a folder that changes ends what is kept
    found = pairs.installed([LIBRARY / "email", LIBRARY / "asyncio", LIBRARY / "logging"])
    with (folder / "issues.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["issue_url", "issue_title", "body"])
        rows.writerows(["https://example.com/1", pair.title, pair.body] for pair in found)
    with home_in(folder):
        yield folder


def run(place: Path, name: str, target: Path, *options: str) -> str:
    """A short run with few pairs and a tiny network."""
    declared = {"issues.csv": str(place / "issues.csv")}
    ingest = ["--source", "issues.csv", "--sample", "200", "--holdout", "0.1", "--words", "500"]
    ingest += ["--body", "32", "--title", "12"]
    evaluate = [*TINY, "--pairs", "12", "--beams", "2"]
    settings = [f"ingest.sources={json.dumps(declared)}", f"ingest.args={json.dumps(ingest)}"]
    settings += [f"evaluate.args={json.dumps(evaluate)}"]
    flags = ["--steps", str(STEPS), "--batch", "16", "--save", "10", *TINY, "--beams", "2", "--known", "100"]
    flags += ["--weights", str(place / f"{name}.npz")]
    changed = [word for setting in settings for word in ("--set", setting)]
    return printed_by(place, "run", "--warm", "30s", "--name", name, *options, *changed, target, *flags)


@pytest.fixture(scope="module")
def trained(place: Path) -> tuple[RunFolder, str]:
    """A run of two workers, and what it printed."""
    printed = run(place, "trained", EXAMPLE)
    return runs.find("trained"), printed


@only_in_soak
def test_checkpoints_are_scored_beside_a_baseline(trained: tuple[RunFolder, str]) -> None:
    found, printed = trained
    state = found.state()
    assert {task.step for name, task in state.tasks.items() if name.startswith("worker")} == {STEPS}
    assert state.tasks["worker-0"].metrics["pairs_per_second"] > 0
    for name in ("bleu", "bleu_greedy", "bleu_unseen", "bleu_baseline", "rouge_l", "validation_loss"):
        assert state.scores[name].latest_step == STEPS, name
    assert 0 < state.scores["rouge_l_baseline"].latest < 100
    assert state.scores["validation_loss"].latest < math.log(500)  # less surprised than by pure chance
    assert re.search(rf"step {STEPS}: bleu \d.* bleu_baseline \d.* of 12 pairs", printed)


@only_in_soak
def test_titles_are_there_to_read(trained: tuple[RunFolder, str]) -> None:
    blocks = (trained[0].path / "eval" / "titles.txt").read_text().strip().split("\n\n")
    assert len(blocks) == 12
    for block in blocks:
        names = [line.partition(":")[0] for line in block.splitlines()]
        assert names == ["body", "title", "baseline", "greedy", "beam"]


@only_in_soak
def test_the_exported_model_takes_text_and_gives_text(trained: tuple[RunFolder, str]) -> None:
    folder = trained[0].path / "model"
    assert [path.name for path in folder.iterdir()] == ["1"]
    assert (folder / "1" / "assets" / "vocabulary.txt").read_text().startswith("[pad]\n[start]\n")
    command = [sys.executable, "-c", ASK, str(folder / "1"), BODY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["imported"] == []
    assert all(title and isinstance(title, str) for title in answers["titles"])
    assert len(answers["titles"]) == 2
    assert answers["alone"] == answers["titles"][0]  # whatever else is in the batch
    titles = {pair.title for pair in pairs.installed([LIBRARY / "email", LIBRARY / "asyncio"])}
    assert len(answers["nearest"]) == 5
    assert titles & {f"{title}{end}" for title in answers["nearest"] for end in ("", ".")}


# A fresh process that has only the exported folder and TensorFlow.
ASK = """
import json, sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
serve = model.signatures["serving_default"]
bodies = tf.constant([sys.argv[2], "\\xc4 second one, with \\xff in it " * 40])
titles = [title.decode() for title in serve(body=bodies)["title"].numpy()]
alone = serve(body=bodies[:1])["title"].numpy()[0].decode()
nearest = [title.decode() for title in model.signatures["nearest"](body=bodies)["titles"].numpy()[0]]
vector = model.signatures["encode"](body=bodies)["vector"].numpy()
assert abs((vector**2).sum(axis=1) - 1).max() < 1e-5, vector
imported = sorted({"oarlock", "words", "decoding"} & sys.modules.keys())
print(json.dumps({"titles": titles, "alone": alone, "nearest": nearest, "imported": imported}))
"""


@only_in_soak  # tests/serving/page writes into the same page
def test_it_is_served_with_a_page_that_writes_a_title(
    trained: tuple[RunFolder, str], place: Path, tmp_path: Path
) -> None:
    folder = trained[0].path / "model"
    manifest = json.loads((folder / "1" / "oarlock.json").read_bytes())
    assert (manifest["kind"], manifest["run"], manifest["step"]) == ("text", "trained", STEPS)
    assert [one["name"] for one in (*manifest["inputs"], *manifest["outputs"])] == ["body", "title"]
    assert manifest["scores"]["loss"] > 0
    with (
        model_server(folder, tmp_path, name="titles") as server,
        browser(tmp_path) as chromium,
        chromium.page(f"{server.url}/") as page,
    ):
        page.until("document.getElementById('model')?.hidden === false", "page with the model")
        page.write("textarea", BODY)
        page.click("button.main")
        page.until("document.getElementById('time').textContent", "answer")
        title = page.text("#answer")
        page.screenshot(Path(os.environ.get("OARLOCK_SCREENSHOTS", tmp_path)) / "title.png")
    assert printed_by(place, "predict", "-m", "trained", BODY).strip().endswith(f": {title}")


@only_in_soak
def test_anybody_can_try_it(trained: tuple[RunFolder, str], tmp_path: Path) -> None:
    folder = trained[0].path / "model"
    words = [sys.executable, EXAMPLE / "try_it.py", "--model"]
    command = [*map(str, words), str(folder), BODY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True, cwd=tmp_path)
    kinds = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert kinds == ["greedy", "beam", "beam", *["near"] * 5]
    command[-2] = str(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"There is no model in {tmp_path}. Train one first")


@only_in_soak
def test_killed_and_resumed_it_ends_with_the_same_weights(
    place: Path, trained: tuple[RunFolder, str]
) -> None:
    assert "resuming from step 10" in run(place, "resumed", killed(place / "killed", at=14))
    assert_same_weights(place, "trained", "resumed")


def killed(folder: Path, at: int) -> Path:
    """The example, with a worker that dies before a step, once."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "strategies.py").open("a") as file:
        file.write(DIES.replace("STEP", str(at)))
    return folder


DIES = """
import os, signal

def train(self, batches, step):
    task = oarlock.current()
    if (step, task.rank, task.generation) == (STEP, 1, 1):
        os.kill(os.getpid(), signal.SIGKILL)
    Alone.train(self, batches, step)

Mirrored.train = train
"""


def assert_same_weights(place: Path, one: str, other: str) -> None:
    with np.load(place / f"{one}.npz") as first, np.load(place / f"{other}.npz") as second:
        assert len(first.files) > 20
        assert first.files == second.files
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])


@only_in_soak
def test_words_and_searches_do_what_they_say(tmp_path: Path) -> None:
    """With an untrained network: its answers are as good as any to compare one search with the other."""
    command = [sys.executable, "-c", WORDS, str(tmp_path / "vocabulary.txt")]
    environ = {**os.environ, "PYTHONPATH": str(EXAMPLE), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["words"] == [
        "the",
        "`",
        "np",
        ".",
        "float32",
        "`",
        "of",
        "r\u00e9sum\u00e9",
        "(",
        "x",
        ")",
    ]
    # Words that the vocabulary does not have come back from the body; in the title alone they are unknown.
    assert answers["copied"] == "The frobnicate of the path"
    assert answers["unknown"] == "The [unknown] of the path"
    assert answers["detached"] == "The `np.float32` of file_name (x), don't"
    assert answers["one beam is greedy"]
    # What the search adds up is what the training calls likely, words that are copied included.
    assert answers["searched"] == pytest.approx(answers["trained"], abs=1e-3)


WORDS = r"""
import json, sys
import keras, tensorflow as tf
import decoding, model, words
found = words.split(tf.constant(["The ``np.float32`` of R\u00e9sum\u00e9 (x)"])).to_list()[0]
bodies = tf.constant(["a path of the path", "Frobnicate: a path of the path"])
vocabulary = words.count(bodies.numpy()[:1].tolist() * 2, 100)
open(sys.argv[1], "w").write("".join(f"{word}\n" for word in vocabulary))
table = words.Vocabulary(sys.argv[1], len(vocabulary))
numbers, spelled = table.of_bodies(bodies, 8)
titles = table.of_titles(tf.constant(["The frobnicate of the path"] * 2), spelled, 8)
unknown, copied = (text.decode() for text in words.joined(table.to_words(titles, spelled)).numpy())
detached = words.joined(words.split(tf.constant(["the ``np.float32`` of file_name (x), don't"])).to_tensor())
keras.utils.set_random_seed(1)
network = model.Summarizer(len(vocabulary), 8, 8, 16, 1)
numbers = tf.cast(numbers, tf.int32)
greedy = decoding.greedy(network, numbers).numpy()
single, _ = decoding.beam(network, numbers, 1)
several, score = decoding.beam(network, numbers, 3)
print(json.dumps({
    "words": [word.decode() for word in found],
    "unknown": unknown, "copied": copied, "detached": detached.numpy()[0].decode(),
    "one beam is greedy": bool((single[:, 0].numpy() == greedy).all()),
    "searched": score[:, 0].numpy().tolist(),
    "trained": [-float(model.losses(network, *rows)[0]) for rows in zip(numbers[:, None], several[:, :1])],
}))
"""


@only_in_soak
def test_parameter_servers_train_it_too(place: Path, trained: tuple[RunFolder, str]) -> None:
    roles = json.dumps({"chief": 1, "worker": 2, "ps": 1})
    run(place, "served", EXAMPLE, "--set", f"roles={roles}")
    state = runs.find("served").state()
    assert state.tasks["chief-0"].step == STEPS
    assert state.scores["validation_loss"].latest < math.log(500)
    assert (runs.find("served").path / "model" / "1" / "saved_model.pb").exists()


@only_in_soak
def test_titles_beat_the_baseline_within_fifteen_minutes_on_two_cores(place: Path) -> None:
    """As a newcomer runs it; `limits.runtime` ends a run that takes longer."""
    printed_by(place, "run", "--set", "limits.runtime=15m", "--name", "whole", EXAMPLE, deadline=1000)
    state = runs.find("whole").state()
    assert state.scores["bleu"].latest > 1.5 * state.scores["bleu_baseline"].latest
    assert state.scores["bleu_unseen"].latest > state.scores["bleu_baseline"].latest
    assert state.scores["rouge_l"].latest > 1.5 * state.scores["rouge_l_baseline"].latest
    printed = printed_by(place, "evaluate", "whole", deadline=600)
    assert re.search(r"bleu \d.*bleu_baseline \d", printed)


@only_in_soak
def test_killed_and_resumed_at_full_size_it_ends_with_the_same_weights(place: Path) -> None:
    for name, target in (("large", EXAMPLE), ("again", killed(place / "again", at=50))):
        flags = ["--steps", "60", "--save", "20", "--weights", str(place / f"{name}.npz")]
        printed = printed_by(place, "run", "--name", name, target, *flags, deadline=1000)
        assert ("resuming from step 40" in printed) == (name == "again")
    assert_same_weights(place, "large", "again")


# What follows starts no TensorFlow.


def test_a_pattern_finds_the_docstrings_that_python_finds() -> None:
    exact, found = set(), set()
    for path in sorted((LIBRARY / "asyncio").glob("*.py")):
        found |= {(pair.title, pair.body) for pair in pairs.docstrings(path)}
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                title, _, body = (ast.get_docstring(node) or "").partition("\n\n")
                exact |= {(title, body)} if body else set()
    assert len(exact) > 100
    assert len(exact & found) / len(exact | found) > 0.97


def test_only_pairs_with_something_to_summarize_are_used() -> None:
    body = "It walks the tree and yields every folder below the given one."
    fit = pairs.Pair(body, "List all folders.")
    unfit = [
        pairs.Pair(body, "List"),
        pairs.Pair("Too short.", "List all folders"),
        pairs.Pair(f"List all folders. {body}", "List all folders"),  # the title is in the body
        pairs.Pair(f"{body} ".lower(), "Another title for it"),  # the same body again
    ]
    assert pairs.cleaned([fit, *unfit]) == [pairs.Pair(body, "List all folders")]


def test_what_is_held_out_depends_on_the_bodies_alone() -> None:
    found = pairs.cleaned(pairs.installed([LIBRARY / "email", LIBRARY / "asyncio"]))
    again = pairs.cleaned(reversed(list(pairs.installed([LIBRARY / "email", LIBRARY / "asyncio"]))))
    assert [pair.body for pair in found] == [pair.body for pair in again]
    parts = [pairs.part_of(pair, 0.1) for pair in found]
    assert parts == [pairs.part_of(pairs.Pair(pair.body, "other"), 0.1) for pair in found]
    for part in ("test", "validation"):
        assert 0.05 < parts.count(part) / len(parts) < 0.15


def test_sections_of_a_description_have_titles(tmp_path: Path) -> None:
    path = tmp_path / "METADATA"
    path.write_text("Name: x\n\n# The tool\nIt does much.\n\n## How to use it ##\nCall it.\nOften.\n")
    found = [(pair.title.strip(), pair.body.strip()) for pair in pairs.sections(path)]
    assert found == [("The tool", "It does much."), ("How to use it", "Call it.\nOften.")]


def test_a_sample_is_the_same_wherever_its_rows_are(tmp_path: Path) -> None:
    rows = [[f"title number {n}", f"the body with number {n} has some more words"] for n in range(50)]
    samples = []
    for name, order in (("one", rows), ("other", rows[::-1])):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([["issue_title", "body"], *order])
        samples.append(pairs.cleaned(pairs.from_csv(tmp_path / name, COLUMNS))[:10])
    assert samples[0] == samples[1]
    assert len(samples[0]) == 10


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "issues.csv").write_text("title,text\nA title,and a body\n")
    with pytest.raises(SystemExit, match=r"no column 'issue_title'; it has title, text.\nName the columns"):
        pairs.from_csv(tmp_path / "issues.csv", COLUMNS)
    found = pairs.from_csv(tmp_path / "issues.csv", ["title", "text"])
    assert found == [pairs.Pair("and a body", "A title")]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"There is no file .*issues.csv. --source takes"):
        pairs.fetch(str(tmp_path / "issues.csv"), tmp_path)


def test_a_csv_file_comes_by_url(tmp_path: Path) -> None:
    (tmp_path / "issues.csv").write_text("issue_title,body\nA title,and a body\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        path = pairs.fetch(f"{url}/issues.csv", tmp_path / "fetched")
        with pytest.raises(SystemExit, match=r"other.csv could not be downloaded: HTTP Error 404"):
            pairs.fetch(f"{url}/other.csv", tmp_path / "fetched")
        server.shutdown()
    assert pairs.from_csv(path, COLUMNS) == [pairs.Pair("and a body", "A title")]


def test_bleu_is_as_published() -> None:
    reference = ["the", "cat", "is", "on", "the", "mat"]
    assert scores.bleu([["the", "cat", "the", "cat", "on", "the", "mat"]], [reference]) == 0.0
    candidate = ["the", "cat", "is", "on", "a", "mat"]
    by_hand = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)
    assert scores.bleu([candidate], [reference]) == pytest.approx(by_hand)
    assert scores.bleu([reference], [reference]) == pytest.approx(100)
    shorter = 100 * math.exp(1 - 6 / 4)
    assert scores.bleu([reference[:4]], [reference]) == pytest.approx(shorter)
    # Over the whole corpus, not the mean of titles; and what sacrebleu 2.6.0 gives for these two.
    assert scores.bleu([candidate, reference[:4]], [reference, reference]) == pytest.approx(56.3880054631507)


def test_rouge_l_is_the_longest_common_subsequence() -> None:
    reference = ["police", "killed", "the", "gunman"]
    assert scores.rouge_l([["police", "kill", "the", "gunman"]], [reference]) == pytest.approx(75)
    assert scores.rouge_l([["the", "gunman", "kill", "police"]], [reference]) == pytest.approx(50)
    assert scores.rouge_l([[], reference], [reference, reference]) == pytest.approx(50)


def test_the_baseline_is_the_first_sentence() -> None:
    assert scores.first_sentence("It fails. Always.") == "It fails."
    assert scores.first_sentence("It fails with np.array, always") == "It fails with np.array, always"
