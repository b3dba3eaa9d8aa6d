"""The translator, by the real `oarlock run`: ingest, training, scores, export.

A few hundred pairs out of one file and a tiny network; what it learns from all of a machine's catalogs takes
minutes and is for the soak.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock.models import model_versions
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support import soaking
from tests.support.commands import home_in, printed_by
from tests.support.loose_modules import loaded
from tests.support.soaking import only_in_soak
from tests.support.translations import TEXT, TINY, invented

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformer"
DEADLINE = 580
STEPS = 20

pytestmark = pytest.mark.slow

catalogs: Any = loaded(EXAMPLE / "catalogs.py")
pairs: Any = loaded(EXAMPLE / "pairs.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what the runs leave, with a file of pairs."""
    folder = tmp_path_factory.mktemp("transformer")
    (EXAMPLE / "__pycache__").mkdir(exist_ok=True)  # a folder that changes ends what is kept
    lines = [f"{number}\t{one}\t{other}\n" for number, (one, other) in enumerate(invented())]
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    with home_in(folder):
        yield folder


def run(
    place: Path,
    name: str,
    target: Path,
    *options: str,
    dropout: str = "0.1",
    lr: str = "0.5",
    more: Sequence[str] = (),
    deadline: int = DEADLINE,
) -> str:
    """A short run with few pairs and a tiny network."""
    declared = {"pairs.tsv": str(place / "pairs.tsv")}
    ingest = ["--source", "pairs.tsv", "--columns", "2,3", "--holdout", "0.1", "--pieces", "200"]
    evaluate = [*TINY, "--pairs", "8", "--beams", "2", "--tokens", "300", "--dropout", dropout]
    settings = [f"ingest.sources={json.dumps(declared)}", f"ingest.args={json.dumps(ingest)}"]
    settings += [f"evaluate.args={json.dumps(evaluate)}"]
    flags = ["--steps", str(STEPS), "--tokens", "400", "--warmup", "10", "--save", "4", "--beams", "2", *TINY]
    flags += ["--dropout", dropout, "--lr", lr, "--weights", str(place / f"{name}.npz"), *more]
    changed = [word for setting in settings for word in ("--set", setting)]
    words: list[str | Path] = ["run", "--warm", "30s", "--name", name, *options, *changed, target, *flags]
    return printed_by(place, *words, deadline=deadline)


@pytest.fixture(scope="module")
def trained(place: Path) -> tuple[RunFolder, str]:
    """A run of two workers, and what it printed."""
    printed = run(place, "trained", EXAMPLE, more=["--export-every", "8"])
    return runs.find("trained"), printed


@only_in_soak
def test_checkpoints_are_scored_by_sacrebleu(trained: tuple[RunFolder, str]) -> None:
    found, printed = trained
    state = found.state()
    assert {task.step for name, task in state.tasks.items() if name.startswith("worker")} == {STEPS}
    for name in ("bleu", "bleu_greedy", "chrf", "bleu_untranslated", "validation_loss"):
        assert state.scores[name].latest_step == STEPS, name
    assert 0 < state.scores["bleu_untranslated"].latest < 100
    assert state.scores["validation_loss"].latest < np.log(200)  # less surprised than by pure chance
    assert 0 < state.scores["validation_accuracy"].latest <= 1
    assert re.search(rf"step {STEPS}: bleu \d.* of 8 pairs", printed)
    assert re.search(r"evaluator-0 \|     is .*\n.*evaluator-0 \|     should be \w+", printed)


@only_in_soak
def test_translations_and_a_picture_are_there_to_look_at(trained: tuple[RunFolder, str]) -> None:
    folder = trained[0].path / "eval"
    first, *blocks = (folder / "translations.txt").read_text().strip().split("\n\n")
    assert re.fullmatch(r"BLEU nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:\S+", first)
    assert len(blocks) == 8
    known = dict(invented())
    for block in blocks:
        named = dict(line.split(":", 1) for line in block.splitlines())
        assert list(named) == ["source", "target", "beam", "greedy"]
        assert known[named["source"].strip()] == named["target"].strip()
    assert (folder / "attention.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@only_in_soak
def test_a_model_can_be_tried_while_the_training_runs(trained: tuple[RunFolder, str]) -> None:
    found, printed = trained
    versions = model_versions.versions(found.path / "model")
    assert [version.manifest().step for version in versions] == [8, 16, STEPS]
    # Keras prints its line after the last step: the first two versions were there before.
    trained_at = printed.index(f"{STEPS}/{STEPS} - ")
    assert (
        printed.index("the model of step 8 is in") < printed.index("the model of step 16 is in") < trained_at
    )
    for version in versions:
        settings = json.loads((version.path / "settings.json").read_text())
        known = {name: settings[name] for name in ("width", "depth", "heads", "dropout", "steps")}
        assert known == {"width": 16, "depth": 1, "heads": 2, "dropout": 0.1, "steps": STEPS}
        vocabulary = (version.path / "assets" / "vocabulary.txt").read_text().splitlines()
        assert len(vocabulary) == settings["vocabulary"]
    assert len({variables(version.path) for version in versions}) == len(versions)


def variables(folder: Path) -> bytes:
    (file,) = (folder / "variables").glob("variables.data-*")
    return file.read_bytes()


@only_in_soak
def test_the_exported_model_needs_tensorflow_alone(trained: tuple[RunFolder, str], tmp_path: Path) -> None:
    newest = model_versions.versions(trained[0].path / "model")[-1]
    assert (newest.manifest().kind, newest.manifest().step) == ("text", STEPS)
    moved = shutil.copytree(newest.path, tmp_path / "moved")  # nothing in it points to where it was made
    command = [sys.executable, "-c", ASK, str(moved), TEXT]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, env=environ, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["imported"] == []
    assert len(answers["translations"]) == 2
    assert answers["alone"] == answers["translations"][0]  # whatever else is in the batch
    assert answers["attended"] == answers["alone"]
    assert "".join(answers["read"]).replace("\u2581", " ").startswith(f" {TEXT}[end]")
    np.testing.assert_allclose(answers["looks"], 1, atol=1e-5)
    assert answers["empty"] is not None


# A fresh process that has only the exported folder and TensorFlow.
ASK = """
import json, sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
serve = model.signatures["serving_default"]
texts = tf.constant([sys.argv[2], "\\xc4 second one, with \\xff in it " * 40, ""])
found = serve(text=texts)["translations"].numpy()
alone = serve(text=texts[:1])["translation"].numpy()[0].decode()
looks = model.attention(texts[:1])
imported = sorted({"oarlock", "tokenizers", "pieces", "text_ops"} & sys.modules.keys())
print(json.dumps({
    "translations": [text.decode() for text in found[0]], "alone": alone, "empty": found[2][0].decode(),
    "read": [piece.decode() for piece in looks["read"].numpy()[0]],
    "attended": looks["translation"].numpy()[0].decode(),
    "looks": looks["attention"].numpy()[0].sum(axis=-1).tolist(), "imported": imported,
}))
"""


@soaking.only_in_soak  # `oarlock predict` asks the same model
def test_anybody_can_try_it(trained: tuple[RunFolder, str], tmp_path: Path) -> None:
    folder = trained[0].path / "model"
    command = [sys.executable, EXAMPLE / "translate.py", "--picture", tmp_path / "looks.png", "--model"]
    words = [*map(str, command), str(folder), TEXT]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=True, cwd=tmp_path)
    text, *found = done.stdout.splitlines()
    assert text == TEXT
    assert len(found) == 2
    assert all(re.fullmatch(r"  .*  \(-\d+\.\d\d\)", line) for line in found)
    assert (tmp_path / "looks.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    words[-2] = str(tmp_path)
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"There is no model in {tmp_path}. Train one first")


@only_in_soak
def test_oarlock_predict_asks_it(place: Path, trained: tuple[RunFolder, str]) -> None:
    said = printed_by(place, "predict", "-m", str(trained[0].path / "model"), TEXT, deadline=DEADLINE)
    assert "translation" in said


@soaking.only_in_soak  # tests/frameworks/test_exact_resume.py kills a fit
def test_killed_and_resumed_it_ends_with_the_same_weights(
    place: Path, trained: tuple[RunFolder, str]
) -> None:
    assert "resuming from step 4" in run(place, "killed", dying(place / "dying", {1: 6}))
    assert_same_weights(place, "trained", "killed")


@soaking.only_in_soak
@pytest.mark.timeout(1800)
def test_killed_and_resumed_on_jax_it_ends_with_the_same_weights(place: Path) -> None:
    on_jax = ("-n", "2", "--set", "env.KERAS_BACKEND=jax")
    run(place, "jax-whole", EXAMPLE, *on_jax)
    printed = run(place, "jax-killed", dying(place / "dying-on-jax", {1: 6, 2: 11}), *on_jax)
    assert "resuming from step 4" in printed
    assert "resuming from step 8" in printed
    assert_same_weights(place, "jax-whole", "jax-killed")


@soaking.only_in_soak
@pytest.mark.timeout(3000)  # six generations, one after the other
def test_killed_five_times_it_ends_with_the_same_weights(place: Path, trained: tuple[RunFolder, str]) -> None:
    target = dying(place / "dying-often", {1: 2, 2: 6, 3: 9, 4: 13, 5: 18})
    printed = run(place, "often", target, "--set", "limits.restarts=9", deadline=2900)
    assert runs.find("often").state().generation == 6
    assert "resuming from step 16" in printed
    assert_same_weights(place, "trained", "often")


def dying(folder: Path, steps: dict[int, int]) -> Path:
    """The example, with a worker that dies in these generations, each before a step."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    program = (folder / "train.py").read_text()
    changed = program.replace("[Finite()]", "[Finite(), dies.Dies()]")
    assert changed != program
    (folder / "train.py").write_text(changed.replace("import dataset", "import dataset\nimport dies"))
    (folder / "dies.py").write_text(DIES.replace("STEPS", str(steps)))
    return folder


DIES = """
import os, signal
import keras
import oarlock

class Dies(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        task, step = oarlock.current(), int(self.model.optimizer.iterations.numpy())
        at = STEPS.get(task.generation)
        if step == at and task.rank == task.generation % 2:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def assert_same_weights(place: Path, one: str, other: str) -> None:
    with np.load(place / f"{one}.npz") as first, np.load(place / f"{other}.npz") as second:
        assert len(first.files) > 20
        assert first.files == second.files
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])


@soaking.only_in_soak  # as in the image classifier
def test_a_loss_that_is_no_number_ends_the_training(place: Path, trained: tuple[RunFolder, str]) -> None:
    with pytest.raises(AssertionError, match=r"the loss is nan in epoch 1: try a lower --lr"):
        run(place, "wild", EXAMPLE, "-n", "1", "--set", "limits.restarts=0", lr="1e30")
    assert not (runs.find("wild").path / "model" / "1").exists()


@soaking.only_in_soak
@pytest.mark.parametrize(("backend", "workers"), [("torch", "1"), ("jax", "2")])
def test_the_same_program_trains_on_another_backend(place: Path, backend: str, workers: str) -> None:
    run(place, backend, EXAMPLE, "-n", workers, "--set", f"env.KERAS_BACKEND={backend}")
    state = runs.find(backend).state()
    assert state.tasks["worker-0"].step == STEPS
    assert state.scores["validation_loss"].latest < np.log(200)  # TensorFlow reads what the other has saved
    assert (runs.find(backend).path / "model" / "1" / "saved_model.pb").exists()


@soaking.only_in_soak
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_two_workers_learn_what_one_learns(place: Path, backend: str) -> None:
    """A mean over all pieces of a step, however they are shared out; without dropout, which differs."""
    for workers in ("1", "2"):
        options = ("-n", workers, "--set", f"env.KERAS_BACKEND={backend}")
        run(place, f"{backend}-{workers}", EXAMPLE, *options, dropout="0")
    with np.load(place / f"{backend}-1.npz") as one, np.load(place / f"{backend}-2.npz") as two:
        for name in one.files:
            np.testing.assert_allclose(one[name], two[name], atol=1e-4)


@soaking.only_in_soak
@pytest.mark.timeout(1100)
def test_it_translates_within_fifteen_minutes_on_two_cores(place: Path) -> None:
    """As a newcomer runs it; `limits.runtime` ends a run that takes longer."""
    printed_by(
        place, "run", "--set", "limits.runtime=15m", "--name", "whole", EXAMPLE, "--keep", "9", deadline=1000
    )
    state = runs.find("whole").state()
    events = runs.find("whole").events()
    reports = [event for event in events if event.get("task") == "evaluator-0" and "bleu" in event]
    scored = {event["step"]: event["bleu"] for event in reports}
    last = max(scored)
    assert state.scores["bleu"].latest == scored[last] > scored[last // 3]
    assert scored[last] > state.scores["bleu_untranslated"].latest


@only_in_soak
def test_tensorflow_cuts_texts_exactly_as_tokenizers_does(tmp_path: Path) -> None:
    """On thousands of sentences, whole alphabets, and texts that nobody would write. And back again."""
    sentences = [
        text for pair in pairs.cleaned([*catalogs.of_this_machine(), *invented()])[:3000] for text in pair
    ]
    (tmp_path / "sentences.json").write_text(json.dumps(sentences))
    environ = {**os.environ, "PYTHONPATH": str(EXAMPLE), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", CUT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["different"] == []
    assert answers["compared"] >= 3000
    assert answers["unknown"] > 0  # some of what is compared is not in the vocabulary
    assert answers["changed"] == []


CUT = r"""
import json, random, sys
import tensorflow as tf
import pieces, text_ops
folder = sys.argv[1]
sentences = json.load(open(f"{folder}/sentences.json"))
pieces.write(folder, pieces.train(sentences[::2], 800))
tokenizer, table = pieces.load(folder), text_ops.Vocabulary(f"{folder}/vocabulary.txt")
drawn = random.Random(1)
ranges = [(1, 127), (160, 1500), (0x2000, 0x3000), (0x4e00, 0x4fff), (0x1f300, 0x1f600), (32, 33)]
ranges.append((0x2581, 0x2582))
odd = ["", " ", "a", "x" * 99, "x" * 100, "x" * 101, "\u00e9" * 100, "\u2581\u2581a \u2581", "tab\there  two"]
texts = sentences + odd
for _ in range(2500):
    letters = (chr(drawn.randrange(*drawn.choice(ranges))) for _ in range(drawn.randrange(1, 60)))
    texts.append("".join(letters))
cut = tf.function(table.numbers, input_signature=[tf.TensorSpec((None,), tf.string)])
mine = [row for at in range(0, len(texts), 500) for row in cut(tf.constant(texts[at : at + 500])).to_list()]
theirs = [row[:-1] for row in pieces.numbers(tokenizer, texts)]
known = [(text, row) for text, row in zip(sentences, theirs) if pieces.UNKNOWN not in row]
back = table.texts(tf.ragged.constant([row for _, row in known]).to_tensor()).numpy()
clean = lambda text: " ".join(text.replace("\u00a0", " ").split(" ")).strip(" ")
print(json.dumps({
    "compared": len(texts),
    "different": [text for text, one, other in zip(texts, mine, theirs) if one != other][:5],
    "unknown": sum(pieces.UNKNOWN in row for row in theirs),
    "changed": [text for (text, _), again in zip(known, back) if again.decode() != clean(text)][:5],
}))
"""


@only_in_soak
def test_searches_and_masks_do_what_they_say() -> None:
    """With an untrained network: its answers are as good as any to compare one search with the other."""
    environ = {**os.environ, "PYTHONPATH": str(EXAMPLE), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", SEARCH]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["one beam is greedy"]
    # What the search adds up, a place at a time with what it keeps, is what the whole network calls likely.
    assert answers["searched"] == pytest.approx(answers["trained"], abs=1e-3)
    assert answers["filled up"] < 1e-5
    assert answers["later pieces"] < 1e-5
    assert answers["earlier pieces"] > 1e-3
    assert answers["smoothed"] == pytest.approx(answers["by Keras"], rel=1e-5)
    rates = answers["rates"]
    assert rates[:3] == pytest.approx([rates[0], 2 * rates[0], 3 * rates[0]], rel=1e-5)
    assert max(rates) == rates[9]
    assert rates[39] == pytest.approx(rates[9] / 2, rel=1e-5)


SEARCH = """
import json
import keras, numpy as np, tensorflow as tf
import decoding, model, pieces
keras.utils.set_random_seed(1)
network = model.Transformer(30, 9, 16, 2, 2, 0.1)
sources = np.array([[5, 6, 7, 2], [8, 9, 2, 0]], "int32")
longer = np.pad(sources, ((0, 0), (0, 3)))
greedy = decoding.greedy(network, tf.constant(sources)).numpy()
single, _ = decoding.beam(network, tf.constant(sources), 1)
several, score = decoding.beam(network, tf.constant(sources), 3)
best = several[:, 0].numpy()

def scores(sources, targets):
    seen = np.concatenate([np.full((len(targets), 1), pieces.START), targets[:, :-1]], axis=1)
    return network({"source": sources, "target": seen.astype("int32")}).numpy()

def likely(found):
    found[..., list(decoding.UNFIT)] = found[..., list(decoding.UNFIT)]
    every = np.log(np.exp(found - found.max(-1, keepdims=True)).sum(-1)) + found.max(-1)
    picked = np.take_along_axis(found, best[..., None], -1)[..., 0] - every
    return (picked * (best != pieces.PAD)).sum(-1).tolist()

changed = best.copy()
changed[:, 3] = 11
later = np.abs(scores(sources, best) - scores(sources, changed)).max(axis=(0, 2))
numbers, found = tf.constant([[4, 5]]), tf.random.normal((1, 2, 30))
smoothed = model.Surprise(0.1).call(numbers, found).numpy().tolist()
exact = keras.losses.categorical_crossentropy(tf.one_hot(numbers, 30), found, True, 0.1).numpy().tolist()
rates = [float(model.WarmUp(16, 10)(step)) for step in range(40)]
print(json.dumps({
    "one beam is greedy": bool((single[:, 0].numpy() == greedy).all()),
    "searched": score[:, 0].numpy().tolist(), "trained": likely(scores(sources, best)),
    "filled up": float(np.abs(scores(sources, best) - scores(longer, best)).max()),
    "later pieces": float(later[:4].max()), "earlier pieces": float(later[4:].max()),
    "smoothed": smoothed[0], "by Keras": exact[0], "rates": rates,
}))
"""


# What follows starts no TensorFlow.


def test_catalogs_have_sentences_of_both_languages(tmp_path: Path) -> None:
    folder = tmp_path / "pt_BR" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    entries = {
        "": "Content-Type: text/plain; charset=UTF-8\n",
        "Cannot open file": "Não é possível abrir",
        "menu\x04_Save file": "_Salvar arquivo",
        "%d file\x00%d files": "%d arquivo\x00%d arquivos",
    }
    content = compiled(entries)
    (folder / "some.mo").write_bytes(content)
    assert list(catalogs.sentences(content, "some.mo")) == [
        ("Content-Type: text/plain; charset=UTF-8\n", ""),
        ("%d arquivo", "%d file"),
        ("Não é possível abrir", "Cannot open file"),
        ("Salvar arquivo", "Save file"),
    ]


def test_what_is_no_catalog_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(catalogs.sentences(b"\xde\x12\x04\x95 broken", "broken.mo")) == []
    assert "broken.mo is passed over" in capsys.readouterr().out


def compiled(entries: dict[str, str]) -> bytes:
    """A catalog, as `msgfmt` writes it."""
    keys = sorted(entries)
    texts = [key.encode() for key in keys] + [entries[key].encode() for key in keys]
    start, table, joined = 28 + 16 * len(keys), b"", b""
    for text in texts:
        table += len(text).to_bytes(4, "little") + (start + len(joined)).to_bytes(4, "little")
        joined += text + b"\0"
    header = [0x950412DE, 0, len(keys), 28, 28 + 8 * len(keys), 0, 0]
    return b"".join(number.to_bytes(4, "little") for number in header) + table + joined


def test_only_pairs_that_say_the_same_are_used() -> None:
    fit = pairs.Pair("não pode abrir %s", "cannot open %s")
    unfit = [
        ("um", "one"),
        ("não pode abrir %s", "cannot open %d"),  # another value is filled in
        ("Open the file", "open the file"),  # not translated
        ("<b>abrir isto</b>", "<b>open this</b>"),
        ("--- 1 2 3 a b", "--- 1 2 3 a c"),
    ]
    assert pairs.cleaned([("não  pode\nabrir %s ", "cannot open %s"), *unfit]) == [fit]


def test_near_duplicates_are_on_one_side() -> None:
    found = pairs.cleaned(invented())
    twins = [pairs.Pair(pair.source.replace("número", "numero"), f"{pair.target} 9") for pair in found]
    parts = pairs.divided([*found, *twins], 0.1)
    assert all(parts.values())
    assert sum(map(len, parts.values())) == len(found) + len(twins)
    for side in (0, 1):
        seen = {likeness for pair in parts["train"] for likeness in pairs.likenesses(pairs.words(pair[side]))}
        for part in ("validation", "test"):
            for pair in parts[part]:
                assert seen.isdisjoint(pairs.likenesses(pairs.words(pair[side])))
    again = pairs.divided([*twins[::-1], *found], 0.1)
    assert {part: set(kept) for part, kept in again.items()} == {
        part: set(kept) for part, kept in parts.items()
    }


def test_pairs_come_from_two_files_or_one_with_tabs(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_text("um dois\ntrês quatro\n")
    (tmp_path / "a.en").write_text("one two\nthree four\n")
    (tmp_path / "a.tsv").write_text("one two\tum dois\tx\nthree four\ttrês quatro\ty\n")
    expected = [pairs.Pair("um dois", "one two"), pairs.Pair("três quatro", "three four")]
    assert pairs.from_files([tmp_path / "a.pt", tmp_path / "a.en"], [1, 2]) == expected
    assert pairs.from_files([tmp_path / "a.tsv"], [2, 1]) == expected
    (tmp_path / "a.en").write_text("one two\n")
    with pytest.raises(SystemExit, match=r"a.pt has 2 lines and .*a.en 1: line by line"):
        pairs.from_files([tmp_path / "a.pt", tmp_path / "a.en"], [1, 2])
    (tmp_path / "a.en").write_text("one two\nthree four")  # the last line may lack its end
    assert pairs.from_files([tmp_path / "a.pt", tmp_path / "a.en"], [1, 2]) == expected
    (tmp_path / "b.tsv").write_text((tmp_path / "a.tsv").read_text().rstrip("\n"))
    assert pairs.from_files([tmp_path / "b.tsv"], [2, 1]) == expected
    with pytest.raises(SystemExit, match=r"no line with 4 columns"):
        pairs.from_files([tmp_path / "a.tsv"], [1, 4])
    with pytest.raises(SystemExit, match=r"There is no file .*c.tsv. --source takes"):
        pairs.fetch(str(tmp_path / "c.tsv"), tmp_path)


def test_a_file_comes_by_url(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("um dois\tone two\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        path = pairs.fetch(f"{url}/a.tsv", tmp_path / "fetched")
        with pytest.raises(SystemExit, match=r"other.tsv could not be downloaded: HTTP Error 404"):
            pairs.fetch(f"{url}/other.tsv", tmp_path / "fetched")
        server.shutdown()
    assert pairs.from_files([path], [1, 2]) == [pairs.Pair("um dois", "one two")]


def test_a_vocabulary_can_be_used_again(tmp_path: Path) -> None:
    """Weights of another run mean something only for the pieces that they were trained on."""
    lines = [f"{one}\t{other}\n" for one, other in invented()]
    (tmp_path / "a.tsv").write_text("".join(lines))
    (tmp_path / "b.tsv").write_text("".join(lines[::2]))

    def ingest(source: str, *more: str) -> tuple[list[str], subprocess.CompletedProcess[str]]:
        out = tmp_path / Path(source).stem
        words = ["--out", out, "--source", tmp_path / source, "--holdout", "0.1", "--pieces", "200", *more]
        command = list(map(str, [sys.executable, EXAMPLE / "ingest.py", *words]))
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
        return (out / "vocabulary.txt").read_text().splitlines(), done

    first, _ = ingest("a.tsv")
    own, _ = ingest("b.tsv")
    assert own != first
    (tmp_path / "kept.txt").write_text("\n".join(first))
    reused, done = ingest("b.tsv", "--vocabulary", str(tmp_path / "kept.txt"))
    assert reused == first, done.stderr
    assert f"{len(first)} pieces" in done.stdout
    with np.load(tmp_path / "b" / "train.npz") as stored:
        numbers = stored["targets"][: stored["target_ends"][0]]
    text = json.loads((tmp_path / "b" / "train.jsonl").read_text().splitlines()[0])["target"]
    assert "".join(first[number] for number in numbers[:-1]) == f" {text}".replace(" ", "\u2581")

    for name, said in (("a.tsv", "is no vocabulary that ingest.py wrote"), ("c.txt", "There is no file")):
        _, done = ingest("b.tsv", "--vocabulary", str(tmp_path / name))
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
