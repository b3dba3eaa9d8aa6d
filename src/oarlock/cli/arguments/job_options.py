"""The arguments of `run`, `render` and `plan`: TARGET, its arguments, and flags over its job file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from oarlock.cli.arguments import other_launchers
from oarlock.errors import JobError
from oarlock.job import job_file, shell_folders
from oarlock.records.run_names import check_name, new_name
from oarlock.screens.output import complain

F = TypeVar("F", bound=Callable[..., Any])

# Our options come before TARGET: no word after it is parsed.
SETTINGS: dict[str, Any] = {"allow_interspersed_args": False}


class JobCommand(click.Command):
    """A command whose options come before TARGET or `-m NAME`; all words after those are the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse only Oarlock's words, not the program's."""
        at = _after_module(self.params, args)
        if at is None:
            at = args.index("--") if "--" in args else len(args)
        try:
            rest = super().parse_args(ctx, args[:at])
        except click.NoSuchOption as problem:
            here = other_launchers.option_here(problem.option_name, args)
            if here is None:
                raise
            raise click.UsageError(here, ctx) from None
        if at < len(args):
            # `train.py a -- b`: everything after the first argument is the program's, including the dashes.
            own, more = ctx.params["args"] or (), args[at:]  # None while a shell completes
            ctx.params["args"] = (*own, *(more[1:] if not own and more[0] == "--" else more))
        return rest


def _after_module(params: Sequence[click.Parameter], words: Sequence[str]) -> int | None:
    """Where the words after `-m NAME` begin; None if there is no such option before TARGET."""
    options = {name: option for option in params if isinstance(option, click.Option) for name in option.opts}
    number = 0
    while number < len(words) and words[number].startswith("-") and words[number] not in ("-", "--"):
        option, has_value = _option(options, words[number])
        number += 1 if has_value or option is None or option.is_flag else 2
        if option is not None and option.name == "module":
            return number if number <= len(words) else None
    return None


def _option(options: Mapping[str, click.Option], word: str) -> tuple[click.Option | None, bool]:
    """The last option in a word, and whether its value is in the word too: `--set=a=b`, `-n4`, `-dm`."""
    name, equals, _ = word.partition("=")
    if word.startswith("--"):
        return options.get(name), bool(equals)
    option = None
    for number, letter in enumerate(word[1:], start=1):
        option = options.get(f"-{letter}")
        if option is None or not option.is_flag:
            return option, number + 1 < len(word)
    return option, False


def job_options(verb: F) -> F:
    """Add [TARGET] [ARGS]... and the flags that change the job; the verb passes them to `load`."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def stage_options(verb: F) -> F:
    """Add [TARGET] and the flags that change the job, for a verb of another stage."""
    for option in reversed((_TARGET, _NAME, *_CHANGES)):
        verb = option(verb)
    return verb


def cluster_options(verb: F) -> F:
    """Add --namespace and --context, which override the fields of the job."""
    for option in reversed(CLUSTER):
        verb = option(verb)
    return verb


def ingest_options(verb: F) -> F:
    """Add --skip-ingest and --force-ingest."""
    for option in reversed(_INGEST):
        verb = option(verb)
    return verb


def load(given: Mapping[str, Any], *, is_here: bool = True) -> job_file.JobFile:
    """Return the job that the options describe. `is_here`: its program must exist on this machine."""
    target, args = given["target"], given.get("args", ())
    if target and not Path(target).exists() and (here := other_launchers.command_here([target, *args])):
        raise JobError(here)
    overrides = {
        "roles.chief.replicas": 1 if given.get("chief") else None,
        "roles.worker.replicas": given.get("workers"),
        "roles.ps.replicas": given.get("ps"),
        "roles.evaluator.replicas": 1 if given.get("evaluator") else None,
        "framework": given.get("framework"),
        "module": given.get("module"),
        "warm": False if given.get("cold") else given.get("warm"),
        "args": list(args) or None,
        "kubernetes.namespace": given.get("namespace"),
        "kubernetes.context": given.get("context"),
        "ingest.when": _when(given),
        **dict(map(_variable, given["variables"])),
    }
    found = job_file.load(target, overrides=overrides, sets=given["sets"], cwd=Path.cwd(), is_here=is_here)
    job, notes = shell_folders.adopt(found.job, os.environ, Path.cwd(), is_here)
    for note in notes:
        complain(note)
    return replace(found, job=job)


def _when(given: Mapping[str, Any]) -> str | None:
    skip, force = given.get("skip_ingest"), given.get("force_ingest")
    if skip and force:
        raise click.UsageError("--skip-ingest and --force-ingest cannot be combined")
    return "never" if skip else "always" if force else None


def misplaced(command: click.Command, given: Mapping[str, Any], program: Path) -> str | None:
    """Return a warning about Oarlock's options that went to the program.

    None if there is none, or if the program's text names the options too.
    """
    found = _ours_among(command, given["args"], program)
    if not found:
        return None
    name, how = given["target"], given["target"]
    if name is None:
        name, how = given["module"], f"-m {given['module']}"
    first = f"oarlock run {' '.join(found)} {how}"
    if len(found) == 1:
        return f"{found[0]} goes to {name}; for Oarlock, put it first: {first}"
    return f"{', '.join(found[:-1])} and {found[-1]} go to {name}; for Oarlock, put them first: {first}"


def _ours_among(command: click.Command, words: Sequence[str], program: Path) -> list[str]:
    """Oarlock's options among a program's arguments, with their values, except those that its text names."""
    ours = {
        name: option for option in command.params if isinstance(option, click.Option) for name in option.opts
    }
    found: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            break
        name, equals, _ = word.partition("=")
        if name not in ours or _names(program, name):
            continue
        value = None if ours[name].is_flag or equals else next(waiting, None)
        found.append(word if value is None else f"{word} {value}")
    return found


def _names(program: Path, option: str) -> bool:
    """Whether the program's text has the option, or a field from which a parser derives it."""
    try:
        text = program.read_text(errors="replace")
    except OSError:
        return True  # the program cannot be read
    field = re.escape(option.lstrip("-").replace("-", "_"))
    if option.startswith("--"):
        return (
            option in text
            or re.search(rf"""["']{field}["']|^\s*{field}\s*:""", text, re.MULTILINE) is not None
        )
    return re.search(rf"""["']{option}["']""", text) is not None


def run_name(job: str, name: str | None) -> str:
    """Return the given name, or a new one. Raises JobError if the given name is invalid."""
    return new_name(job) if name is None else check_name(name)


def _variable(written: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not equals or not name:
        raise JobError(f"--env {written}: expected a name and a value, such as SEED=7")
    return f"env.{name}", value


_TARGET = click.argument("target", required=False, type=click.Path())
_NAME = click.option("--name", help="The run's name. Default: the job's name and four letters.")
_CHANGES = (
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Set any field: --set limits.restarts=5; repeatable.",
    ),
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a variable for every task; repeatable.",
    ),
)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _TARGET,
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
    click.option("-n", "--workers", metavar="N", help="The number of workers, or min..max."),
    click.option("--chief", is_flag=True, help="Add a chief, which leads and saves instead of worker 0."),
    click.option("--ps", metavar="N", help="The number of parameter servers."),
    click.option("--evaluator", is_flag=True, help="Add an evaluator."),
    _NAME,
    click.option("--framework", help="auto, tensorflow, torch, jax or none."),
    *_CHANGES,
    click.option(
        "-m",
        "--module",
        metavar="NAME",
        help="Run a module instead of TARGET; all that follows goes to it, as with python -m.",
    ),
    click.option(
        "--warm", metavar="TIME", help="Keep imported modules for the next run for TIME (warm: 10m)."
    ),
    click.option(
        "--cold", is_flag=True, help="Start each task as a new process instead of forking it (warm: false)."
    ),
)
_INGEST: tuple[Callable[[Any], Any], ...] = (
    click.option("--skip-ingest", is_flag=True, help="Use the data that is there (ingest.when: never)."),
    click.option(
        "--force-ingest", is_flag=True, help="Prepare the data again if it is there (ingest.when: always)."
    ),
)
CLUSTER: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--namespace", metavar="NAME", help="The cluster's namespace. Default: the job's, then the context's."
    ),
    click.option(
        "--context",
        metavar="NAME",
        help="The kubeconfig's context. Default: the job's, then the current one.",
    ),
)
