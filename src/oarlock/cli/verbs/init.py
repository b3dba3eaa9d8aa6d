"""`oarlock init`: a job file to start from, with every field explained."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
import yaml

from oarlock.cli.arguments.options import json_option
from oarlock.errors import JobError
from oarlock.job.job_file import JOB_FILES
from oarlock.job.model import Job, Kubernetes, Limits, Role, Serve, Storage, parse, slug, to_data
from oarlock.job.parsing.fields import Section, fields_of
from oarlock.program import frameworks
from oarlock.screens.output import hint, print_document, print_json, say

_LIKELY = ("train.py", "main.py")
_MACHINE = ("processes", "cpu", "memory")
_KUBERNETES = {"image": "python:3.11-slim", "namespace": "default", "claim": "{size: 10Gi}", "ttl": "24h"}
_SERVE = {"replicas": "1", "version": "newest", "when": "accuracy >= 0.95"}
_STORAGE = {"data": "./data", "checkpoints": "./checkpoints", "model": "./model", "logs": "./logs"}
_STORAGE["snapshots"] = "s3://bucket/folder"
_STORAGE["weights"] = "s3://bucket/folder/other-run"


@click.command("init")
@click.argument("program", required=False, type=click.Path())
@click.option("--force", is_flag=True, help="Overwrite an existing job file.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print it instead of writing a file.")
@json_option("the file's path and the job as JSON")
def verb(program: str | None, force: bool, to_stdout: bool, as_json: bool) -> None:
    """Write a commented job.yaml for a program.

    Writes it beside PROGRAM; by default train.py, main.py or the only program in this folder.
    """
    path = _program(Path(program or ".").absolute())
    text = write(path)
    if to_stdout:
        print_document(text)
        return
    file = path.parent / JOB_FILES[0]
    there = next((path.parent / name for name in JOB_FILES if (path.parent / name).exists()), None)
    if there and not force:
        raise JobError(f"{there} exists; --force overwrites it, --stdout prints instead")
    file.write_text(text)
    if as_json:
        print_json({"file": str(file), "job": to_data(parse(yaml.safe_load(text)), full=True)})
        return
    say(f"wrote {file}")
    hint("oarlock run" if path.parent == Path.cwd() else f"oarlock run {file}")


def write(program: Path) -> str:
    """The text of the job file. Every line that is commented out is valid as it stands."""
    framework = frameworks.detect(program.parent, program.name, None)
    fields = yaml.safe_dump({"name": slug(program.parent.name), "program": program.name}, sort_keys=False)
    return "\n".join(
        [
            "# A job for Oarlock: here, `oarlock run` starts it and `oarlock run --dry-run` explains it.",
            "# Lines that are commented out show defaults and examples.",
            fields.rstrip(),
            "# args: [--epochs, 3]  # Arguments of the program.",
            "# env:",
            "#   EXAMPLE: value",
            f"# pip: [numpy]  # {_about(Job, 'pip')}",
            f"# framework: {framework}  # {_about(Job, 'framework')}",
            "",
            f"roles:  # {_about(Job, 'roles')}",
            "  worker:",
            "    replicas: 2  # how many train together; min..max lets the gang shrink and grow",
            *(f"    # {line}" for line in _lines(Role, _MACHINE)),
            f"    # gpu: 1  # {_about(Role, 'gpu')}",
            "  # chief: 1  # leads and saves; without it worker 0 does",
            "  # ps: 1  # parameter servers (TensorFlow)",
            "  # evaluator: 1  # scores checkpoints beside the training",
            "",
            f"# serve:  # {_about(Job, 'serve')}",
            *(f"#   {name}: {value}  # {_about(Serve, name)}" for name, value in _SERVE.items()),
            "",
            f"# storage:  # {_about(Job, 'storage')}",
            *(f"#   {name}: {place}  # {_about(Storage, name)}" for name, place in _STORAGE.items()),
            "",
            f"# limits:  # {_about(Job, 'limits')}",
            *(f"#   {line}" for line in _lines(Limits, fields_of(Limits))),
            "",
            f"# kubernetes:  # {_about(Job, 'kubernetes')}",
            *(f"#   {name}: {value}  # {_about(Kubernetes, name)}" for name, value in _KUBERNETES.items()),
            "",
            *(f"# {name}: {_default(Job, name)}  # {_about(Job, name)}" for name in ("warm", "network")),
            f"# seed: 0  # {_about(Job, 'seed')}",
            "",
        ]
    )


def _program(given: Path) -> Path:
    if given.is_file():
        return given
    if not given.is_dir():
        raise JobError(f"{given}: no such program")
    programs = sorted(given.glob("*.py"))
    likely = [given / name for name in _LIKELY if given / name in programs]
    if likely or len(programs) == 1:
        return (likely or programs)[0]
    raise JobError(f"which program? There is no train.py in {given}; name it: oarlock init PROGRAM")


def _lines(section: type[Section], names: Iterable[str]) -> list[str]:
    return [f"{name}: {_default(section, name)}  # {_about(section, name)}" for name in names]


def _about(section: type[Section], name: str) -> str:
    return fields_of(section)[name].description


def _default(section: type[Section], name: str) -> str:
    value = fields_of(section)[name].default
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
