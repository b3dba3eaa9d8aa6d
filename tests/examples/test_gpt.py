"""The GPT examples, by the real `oarlock run`: what they learn and write, with one worker and with two.

Tiny models on a short text: the examples' own sizes take a minute or two.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from oarlock.models import model_versions
from oarlock.models.model_versions import Version
from oarlock.records import runs
from tests.support.commands import SCRIPT, home_in
from tests.support.loose_modules import loaded
from tests.support.model_servers import model_server
from tests.support.soaking import IS_SOAK, cases, only_in_soak

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE = 280
STEPS = 60
TINY = [
    *("--layers", "1", "--width", "32", "--heads", "2", "--context", "32"),
    *("--batch", "12", "--lr", "0.01", "--warmup", "10"),
]
BOTH = ["gpt_torch", "gpt_jax"]

pytestmark = pytest.mark.slow


class Place(NamedTuple):
    """One of the examples, and a folder for what its runs leave behind."""

    example: str
    folder: Path

    def start(self, *command: str | Path, **variables: str) -> subprocess.Popen[str]:
        source = self.folder / "words.txt"
        source.write_text(str(re.__doc__) * 8)
        return subprocess.Popen(
            [*map(str, command), *TINY, "--data", str(source)],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def launched(self, name: str, workers: int, *flags: str) -> subprocess.Popen[str]:
        target = EXAMPLES / self.example
        return self.start(SCRIPT, "run", "--warm", "30s", "-n", str(workers), "--name", name, target, *flags)

    def plain(self, name: str, *flags: str) -> subprocess.Popen[str]:
        program = EXAMPLES / self.example / "train.py"
        kept = {"MODEL_DIR": self.model(name), "CHECKPOINT_DIR": self.folder / name}
        return self.start(sys.executable, program, *flags, **{key: str(path) for key, path in kept.items()})

    def model(self, name: str) -> Path:
        return self.folder / "home" / "runs" / name / "model"

    def version(self, name: str) -> Path:
        """The only version of the model of a run."""
        (found,) = model_versions.versions(self.model(name))
        return found.path

    def weights(self, name: str) -> dict[str, np.ndarray]:
        folder = self.version(name)
        if self.example == "gpt_jax":
            with np.load(folder / "weights.npz") as stored:
                return dict(stored)
        import torch

        stored = torch.load(folder / "model.pt", weights_only=True)
        return {name: tensor.numpy() for name, tensor in stored["weights"].items()}


def output_of(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    return output


def loss_in(output: str) -> float:
    found = re.search(r"loss (\d+\.\d+) on text it never saw", output)
    assert found, output
    return float(found[1])


@pytest.fixture(scope="module", params=cases(BOTH[:1], soak=BOTH[1:]))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(request.param, tmp_path_factory.mktemp(request.param))
    (EXAMPLES / request.param / "__pycache__").mkdir(exist_ok=True)  # a folder that changes ends what is kept
    with home_in(place.folder):
        yield place


@pytest.fixture(scope="module")
def trained(place: Place) -> dict[str, str]:
    """What each run printed: of two workers and, in a soak, of one and of the program without a launcher."""
    steps = ("--steps", str(STEPS))
    two = place.launched("two", 2, *steps, "--dropout", "0")
    if not IS_SOAK:
        return {"two": output_of(two)}
    # Two at a time: one imports its framework while the other trains.
    plain = place.plain("plain", *steps)
    printed = {"two": output_of(two), "plain": output_of(plain)}
    return {**printed, "one": output_of(place.launched("one", 1, *steps, "--dropout", "0"))}


def test_two_workers_learn(place: Place, trained: dict[str, str]) -> None:
    assert loss_in(trained["two"]) < 3.0  # 5.5 is knowing nothing, and about 3.3 how often each byte occurs
    assert f"of the model in {place.model('two') / '1'}" in trained["two"]
    manifest = Version(1, place.version("two")).manifest()
    assert (manifest.kind, manifest.run, manifest.step) == ("completion", "two", STEPS)
    assert abs(manifest.scores["held_out_loss"] - loss_in(trained["two"])) < 1e-4


def test_each_worker_tells_how_far_it_is(place: Place, trained: dict[str, str]) -> None:
    (run,) = (run for run in runs.all_runs() if run.name == "two")
    state = run.state()
    assert list(state.tasks) == ["worker-0", "worker-1"]
    for task in state.tasks.values():
        assert task.step == task.total == STEPS
        assert 0 < task.metrics["loss"] < 3.5
    losses = {task.metrics["loss"] for task in state.tasks.values()}
    assert len(losses) == 1  # that of the whole batch, so all say the same


def test_each_machine_notes_the_checksum_of_its_text(place: Place, trained: dict[str, str]) -> None:
    (run,) = (run for run in runs.all_runs() if run.name == "two")
    events = map(json.loads, (run.path / "events.jsonl").read_text().splitlines())
    noted = [str(event["text"]) for event in events if event["kind"] == "note"]
    told = [text.partition(": ")[2] for text in noted if "checksum" in text]
    assert len(told) == 2
    assert len(set(told)) == 1
    assert told[0] in trained["two"]


@only_in_soak
def test_one_and_two_workers_end_with_the_same_weights(place: Place, trained: dict[str, str]) -> None:
    one, two = place.weights("one"), place.weights("two")
    assert one.keys() == two.keys()
    apart = {name: np.abs(one[name] - two[name]).max() for name in one}
    assert max(apart.values()) < 1e-4, apart


@only_in_soak
def test_it_runs_without_a_launcher(place: Place, trained: dict[str, str]) -> None:
    assert loss_in(trained["plain"]) < 3.0


def test_the_model_is_loaded_again_and_writes(place: Place, trained: dict[str, str]) -> None:
    command = [sys.executable, EXAMPLES / place.example / "sample.py", place.version("two")]
    told = subprocess.run(
        [*map(str, command), "--prompt", "This module ", "--length", "60"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    ).stdout
    assert told.startswith("This module ")
    assert len(told.encode()) >= 60
    assert len(set(told)) > 5
    assert told.count(" ") > 6


# What the server writes, alone and all at a time, and what the whole network says: run over all that the
# window holds, for each byte again. With temperature 0, and with random numbers: so small a model knows
# little but that spaces are frequent. FULL gives `scores_after(window)`.
WRITES = """
import asyncio, json, sys
from pathlib import Path
import numpy as np
from oarlock.models.model_versions import Version
from oarlock.serving.generation.sampling import Sampling, draw
from oarlock.serving.server import model_loading

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
FULL

COUNT, SEED = 75, 5
PROMPTS = [b"This", b"The module", b"\\n", b"a" * 31, b"b" * 32, b"Return the " * 9, b"re", b"x", b"of the"]
reader = model_loading.load(Version(1, folder))
context = reader.generator.context

async def written(prompts, sampling):
    stream = reader.open(prompts, sampling)
    texts = [b""] * len(prompts)
    while pieces := await stream.pieces():
        for index, piece in pieces:
            texts[index] += piece.token_chance.piece
    return texts

async def joining(prompts, sampling):
    waits = [asyncio.create_task(written([prompt], sampling)) for prompt in prompts]
    return [(await one)[0] for one in waits]

def expected(prompt, sampling):
    tokens, begin = list(prompt), max(0, len(prompt) - context)
    random = np.random.default_rng([SEED, 0])
    for _ in range(COUNT):
        if len(tokens) - begin > context:
            begin = len(tokens) - context // 2
        tokens += draw(scores_after(tokens[begin:]), [sampling], [random.random()])
    return bytes(tokens[len(prompt):])

async def main():
    for temperature in (0, 1):
        sampling = Sampling(max_tokens=COUNT, temperature=temperature, seed=SEED, logprobs=0)
        texts = [
            [expected(prompt, sampling) for prompt in PROMPTS],
            [(await written([prompt], sampling))[0] for prompt in PROMPTS],
            await written(PROMPTS, sampling),
            (await joining(PROMPTS * 3, sampling))[9:18],
        ]
        print(json.dumps([[text.hex() for text in each] for each in texts]))

asyncio.run(main())
reader.close()
"""
FULL = {
    "gpt_torch": """
import torch
from model import imported
network = imported(torch.load(folder / "model.pt", weights_only=True))

@torch.no_grad()
def scores_after(window):
    return network(torch.tensor([window]))[:, -1].numpy()
""",
    "gpt_jax": """
import functools, jax, model
weights, config = model.load(folder)
scores_of = jax.jit(functools.partial(model.scores_of, config=config))

def scores_after(window):
    row = np.zeros((1, config.context), np.int32)
    row[0, :len(window)] = window
    return np.asarray(scores_of(weights, row)[:, len(window) - 1])
""",
}


def test_the_server_writes_what_the_whole_network_says_alone_and_beside_others(
    place: Place, trained: dict[str, str]
) -> None:
    program = WRITES.replace("FULL", FULL[place.example])
    command = [sys.executable, "-c", program, str(place.version("two"))]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # several wait for each other on a busy machine
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=False, env=one_thread
    )
    assert done.returncode == 0, done.stderr
    likeliest, drawn = map(json.loads, done.stdout.splitlines())
    for expected, alone, together, joining in (likeliest, drawn):
        assert alone == expected
        assert together == expected
        assert joining == expected
    assert len(set(drawn[0])) == 9


def test_it_is_served_and_a_completion_streams(place: Place, trained: dict[str, str]) -> None:
    import openai  # takes a second, in every process that collects this file

    if place.example == "gpt_jax" and not IS_SOAK:
        return  # what it writes is compared above, and the server is the same
    with model_server(place.model("two"), place.folder, name="gpt") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=DEADLINE)
        chosen: dict[str, Any] = {"model": "gpt", "prompt": "This module ", "max_tokens": 90, "seed": 3}
        with client:
            whole = client.completions.create(**chosen).choices[0]
            pieces = [event.choices[0] for event in client.completions.create(**chosen, stream=True)]
    assert whole.text == "".join(piece.text for piece in pieces)
    assert len(whole.text) > 30
    assert whole.finish_reason == pieces[-1].finish_reason == "length"


@only_in_soak
def test_a_profile_is_a_trace_of_three_steps(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    place = Place("gpt_torch", tmp_path)
    printed = output_of(place.plain("profiled", "--steps", "8", "--profile", str(file)))
    assert f"a trace of three steps is in {file}: open it in ui.perfetto.dev" in printed
    events = json.loads(file.read_text())["traceEvents"]
    names = [str(event.get("name")) for event in events]
    assert {name for name in names if name.startswith("ProfilerStep")} == {
        f"ProfilerStep#{n}" for n in (4, 5, 6)
    }
    assert sum(name.startswith("Optimizer.step#") for name in names) == 3
    assert "aten::mm" in names


KERNELS = """
import threading
import torch
from model import GPT, Config
from step import load_kernels
from torch.optim.optimizer import register_optimizer_step_post_hook

config, device = Config(dropout=0.5), torch.device("cpu")  # what it does on a GPU, where it is of use
taken, failed = [], []
threading.excepthook = failed.append
register_optimizer_step_post_hook(lambda *_: taken.append("a step"))
threads = load_kernels(config, 2, device)
torch.manual_seed(7)
weights = [*GPT(config).parameters(), torch.rand(3)]
for thread in threads:
    thread.join()
torch.manual_seed(7)
again = [*GPT(config).parameters(), torch.rand(3)]
assert (taken, failed) == (["a step"], [])
assert all(torch.equal(one, other) for one, other in zip(weights, again, strict=True))
"""


def test_the_step_that_loads_kernels_changes_no_random_number_of_the_real_network() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KERNELS],
        cwd=EXAMPLES / "gpt_torch",
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# What follows trains nothing.


def test_both_examples_read_the_same_text() -> None:
    """The folder alone travels, so each has its own copy."""
    first, second = (EXAMPLES / name / "text.py" for name in BOTH)
    assert first.read_bytes() == second.read_bytes()


@only_in_soak
def test_documentation_is_found_without_a_network_and_is_the_same_each_time(tmp_path: Path) -> None:
    # That of Python itself is enough; all packages of this environment take ten times as long to read.
    python_alone = "sys.path[:] = [one for one in sys.path if 'site-packages' not in one]"
    program = f"""
import sys, oarlock.training.data, text
{"" if IS_SOAK else python_alone}
found = text.load()
print(found.about, len(found.train), len(found.held_out))
"""
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=EXAMPLES / "gpt_torch",
            env={**os.environ, "DATA_DIR": str(tmp_path / name)},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        ).stdout
        for name in cases(["first"], soak=["second"])
    ]
    assert told[0] == told[-1]
    found = re.fullmatch(r"[\d,]+ bytes of text, checksum [0-9a-f]{8} (\d+) (\d+)\n", told[0])
    assert found, told
    assert int(found[1]) > 1_000_000
    assert int(found[2]) == 65_536


def test_a_model_of_tokens_is_not_asked_for_text(tmp_path: Path) -> None:
    """Only their tokenizer knows what they stand for."""
    import torch

    (np.arange(3000) % 300).astype("uint16").tofile(tmp_path / "train.bin")
    program, place = EXAMPLES / "gpt_torch" / "train.py", {"MODEL_DIR": "model", "CHECKPOINT_DIR": "kept"}
    flags = [*TINY, "--steps", "1", "--tokens", "train.bin", "--vocabulary", "300"]
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    command = [sys.executable, program, *flags]
    done = run(command, env={**os.environ, **place}, check=True)
    assert "on tokens it never saw, of the model in model" in done.stdout
    module, stored = loaded(program.with_name("model.py")), torch.load(tmp_path / "model" / "model.pt")
    scores = module.imported(stored)(torch.tensor([[1, 2]]))
    assert scores.shape == (1, 2, 300), "the rows that fill up the embedding stand for nothing"
    done = run([sys.executable, program.with_name("sample.py"), "model"], check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "model knows 300 tokens, and only the tokenizer that made them knows their text\n"
