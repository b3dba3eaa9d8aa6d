"""`oarlock predict`: ask a trained model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.predicting import find_server, given_examples, model_client
from oarlock.cli.predicting.given_examples import Example
from oarlock.cli.predicting.model_client import Described, ModelClient
from oarlock.cli.session.signals import leaving_in_order
from oarlock.errors import OarlockError
from oarlock.screens.output import print_json_line, redraw, say
from oarlock.screens.units import number
from oarlock.system.atomic_file import write_whole

_BEST = 3  # classes to name
_WIDTH = 40  # of the progress


@click.command("predict")
@click.argument("words", metavar="[INPUT...]", nargs=-1)
@click.option(
    "-m",
    "--model",
    "target",
    metavar="RUN|FOLDER|URL",
    shell_complete=run_names,
    help="The model. Default: the one that is served, else that of the newest run.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write JSON lines there."
)
@click.option("--batch", type=click.IntRange(1), default=32, help="Examples in one request. Default: 32.")
@click.option("--token-file", type=click.Path(path_type=Path), help="The file with the server's token.")
@click.option("--max-tokens", type=click.IntRange(1), default=64, help="Of a text model. Default: 64.")
@click.option("--temperature", type=float, default=0.0, help="Of a text model. Default: 0, the likeliest.")
@json_option("a line of JSON for each example")
def verb(
    words: Sequence[str],
    target: str | None,
    output: Path | None,
    batch: int,
    token_file: Path | None,
    max_tokens: int,
    temperature: float,
    as_json: bool,
) -> int:
    """Ask a trained model, and print its answers.

    An INPUT is a file (a picture, JSON, JSON lines, .npy, text), a folder of files, or the value itself: text
    or JSON. Without one, each line of standard input is an example. A served model answers; where none is
    served, this command loads the model itself.
    """
    if not words and sys.stdin.isatty():
        raise click.UsageError("give an input: a file, a folder, text or JSON; or pipe lines into it")
    with (
        leaving_in_order(),
        find_server.access_to(target, token_file) as access,
        model_client.connected(access) as client,
    ):
        model = client.describe()
        examples = given_examples.read(words, model.inputs)
        if model.kind == "completion":
            options = {"max_tokens": max_tokens, "temperature": temperature}
            answers = _completed(client, model, examples, options)
        else:
            answers = _predicted(client, model, examples, batch)
        count = _write(answers, output) if output else _print(answers, model, as_json)
    if not count:
        raise OarlockError("there was no example in the input")
    return 0


Answered = tuple[Example, dict[str, Any]]


def _predicted(
    client: ModelClient, model: Described, examples: Iterable[Example], batch: int
) -> Iterator[Answered]:
    left = iter(examples)
    while some := list(islice(left, batch)):
        yield from zip(some, client.predict(model, some))


def _completed(
    client: ModelClient, model: Described, examples: Iterable[Example], options: dict[str, Any]
) -> Iterator[Answered]:
    for one in examples:
        prompt = str(next(iter(one.values.values())))
        yield one, {"text": client.complete(model, prompt, options)}


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
    """All answers, or no file at all; with progress on a terminal."""
    lines: list[str] = []
    for example, outputs in answers:
        lines.append(json.dumps(_line(example, outputs), ensure_ascii=False))
        if sys.stderr.isatty():
            redraw(f"{len(lines)} answers", _WIDTH)
    if lines:
        if sys.stderr.isatty():
            redraw("", _WIDTH)
        write_whole(path, "".join(f"{line}\n" for line in lines).encode())
        say(f"{len(lines)} answers in {path}", err=True)
    return len(lines)


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
