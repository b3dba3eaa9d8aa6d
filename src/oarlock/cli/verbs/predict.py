"""`oarlock predict`: ask a trained model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from oarlock.cli.arguments.job_options import cluster_options
from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.predicting import dispatch, find_server, given_examples
from oarlock.cli.predicting.find_server import ServerLane, Wanted
from oarlock.cli.predicting.given_examples import Example
from oarlock.cli.predicting.model_client import Described
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.known_engines import TRAINING
from oarlock.errors import OarlockError
from oarlock.screens.output import print_json_line, redraw, say
from oarlock.serving.settings import MOST_REPLICAS
from oarlock.system.atomic_file import whole_file
from oarlock.units import number

_BEST = 3  # classes to name
_WIDTH = 40  # of the progress line
_NOTHING = "there was no example in the input"


@click.command("predict")
@click.argument("words", metavar="[INPUT...]", nargs=-1)
@click.option(
    "-m",
    "--model",
    "target",
    metavar="RUN|FOLDER|URL",
    shell_complete=run_names,
    help="The model. Default: the one that is served, otherwise the newest run's.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write JSON lines there."
)
@click.option(
    "--on",
    type=click.Choice(TRAINING),
    help="Where to load the model. "
    "Default: ask the running server; if there is none, load it on this machine.",
)
@click.option(
    "-n",
    "--workers",
    type=click.IntRange(1, MOST_REPLICAS),
    help="How many processes, or pods, load the model and share the examples.",
)
@click.option("--batch", type=click.IntRange(1), default=32, help="Examples in one request. Default: 32.")
@click.option("--version", "which", metavar="newest|best|N", help="The model's version. Default: newest.")
@click.option("--token-file", type=click.Path(path_type=Path), help="The file with the server's token.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=64,
    help="For text models: the most tokens to generate. Default: 64.",
)
@click.option(
    "--temperature", type=float, default=0.0, help="For text models. Default: 0, the likeliest token."
)
@cluster_options
@click.option(
    "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Set any field: --set serve.memory=4Gi."
)
@json_option("a line of JSON for each example")
def verb(words: Sequence[str], output: Path | None, as_json: bool, **given: Any) -> int:
    """Ask a trained model, and print its answers.

    An INPUT is a file (a picture, JSON, JSON lines, .npy, text), a folder of files, or the value itself: text
    or JSON. Without one, each line of standard input is an example. If the model is served, the server
    answers; otherwise this command loads the model itself: here, or with --on kubernetes in pods.
    """
    if not words and sys.stdin.isatty():
        raise click.UsageError("give an input: a file, a folder, text or JSON; or pipe lines into it")
    wanted = _wanted(given)
    with leaving_in_order(), find_server.lanes(wanted, given, lambda text: say(text, err=True)) as lanes:
        model = dispatch.from_any(lanes, lambda lane: lane.client.describe())
        examples = given_examples.read(words, model.inputs)
        options = {name: given[name] for name in ("max_tokens", "temperature")}
        answers = _answers(lanes, model, examples, wanted.batch, options)
        count = _write(answers, output) if output else _print(answers, model, as_json)
    if not count:
        raise OarlockError(_NOTHING)
    return 0


def _wanted(given: Mapping[str, Any]) -> Wanted:
    wanted = Wanted(given["target"], given["on"], given["workers"], given["batch"], given["token_file"])
    if wanted.is_url and (wanted.on or wanted.workers):
        raise click.UsageError("--on and --workers load a model, and the one at a URL is served already")
    return wanted


Answered = tuple[Example, dict[str, Any]]


def _answers(
    lanes: Sequence[ServerLane],
    model: Described,
    examples: Iterable[Example],
    batch: int,
    options: dict[str, Any],
) -> Iterator[Answered]:
    """Each example with the model's outputs, in order."""
    writes_text = model.kind == "completion"

    def ask(lane: ServerLane, some: list[Example]) -> list[dict[str, Any]]:
        if not writes_text:
            return lane.client.predict(model, some)
        prompts = [str(next(iter(one.values.values()))) for one in some]
        return [{"text": lane.client.complete(model, prompt, options)} for prompt in prompts]

    left = iter(examples)
    batches = iter(lambda: list(islice(left, 1 if writes_text else batch)), [])
    for some, outputs in dispatch.answered(lanes, batches, ask):
        yield from zip(some, outputs)


def _print(answers: Iterable[Answered], model: Described, as_json: bool) -> int:
    count = 0
    for example, outputs in answers:
        count += 1
        if as_json:
            print_json_line(_line(example, outputs))
        else:
            say(f"{_shortened(example.source)}: {_in_words(outputs, model)}", lines=True)
    return count


def _write(answers: Iterable[Answered], path: Path) -> int:
    """Write all answers, or no file at all; with progress on a terminal."""
    began, count = time.monotonic(), 0
    is_shown = sys.stderr.isatty()
    try:
        with whole_file(path) as file:
            for count, (example, outputs) in enumerate(answers, 1):
                file.write(json.dumps(_line(example, outputs), ensure_ascii=False).encode() + b"\n")
                if is_shown:
                    redraw(_progress(count, time.monotonic() - began), _WIDTH)
            if not count:
                raise OarlockError(_NOTHING)
    except OSError as problem:
        raise OarlockError(f"{path} cannot be written: {problem.strerror or problem}") from None
    if is_shown:
        redraw("", _WIDTH)
    say(f"{count} answers in {path}", err=True)
    return count


def _progress(count: int, seconds: float) -> str:
    return f"{count} answers, {count / max(seconds, 0.001):.0f}/s"


def _line(example: Example, outputs: dict[str, Any]) -> dict[str, Any]:
    return {"input": example.source, "outputs": outputs}


def _in_words(outputs: dict[str, Any], model: Described) -> str:
    """The likeliest classes with their scores, or the values."""
    only = next(iter(outputs.values())) if len(outputs) == 1 else None
    if isinstance(only, list) and model.labels and len(only) == len(model.labels):
        ranked = sorted(zip(model.labels, only), key=lambda pair: -pair[1])[:_BEST]
        return ", ".join(f"{label} {number(score)}" for label, score in ranked)
    if isinstance(only, str):
        return only
    return json.dumps(outputs if only is None else only, ensure_ascii=False)


def _shortened(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else text
    return first if len(first) <= 60 else f"{first[:59]}…"
