"""`oarlock chaos`: see for yourself that a run survives."""

from __future__ import annotations

import random
import sys

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.chaos_run import chaos_report
from oarlock.cli.chaos_run.faults_drawn import KINDS, POD_KINDS
from oarlock.cli.chaos_run.inflict import Chaos, Plan
from oarlock.cli.session import find_run
from oarlock.cli.session.ask_agent import kept_fresh, require_running
from oarlock.errors import OarlockError
from oarlock.quantities import Duration
from oarlock.records.runs import RunFolder
from oarlock.screens.output import confirm, print_json, say
from oarlock.screens.units import plural

_INTERRUPTED = 130
_LONGEST_PAUSE = 3600.0


@click.command("chaos")
@run_argument
@click.option("--faults", default=5, show_default=True, metavar="N", type=click.IntRange(1), help="How many.")
@click.option(
    "--every",
    default="10s",
    show_default=True,
    metavar="TIME",
    help="For how long the run is left alone before each, on average: a half to one and a half of it.",
)
@click.option(
    "--kinds",
    metavar="KIND,...",
    help="Of kill, pause, preempt; on Kubernetes delete and evict; default: all.",
)
@click.option("--pause", default="5s", show_default=True, metavar="TIME", help="How long a pause takes.")
@click.option(
    "--seed", type=int, metavar="N", help="The same seed gives the same faults; default: a new one."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("the report as JSON")
def verb(
    name: str | None,
    faults: int,
    every: str,
    kinds: str | None,
    pause: str,
    seed: int | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Kill, pause and preempt a run, and report how it survives.

    kill: SIGKILL to a random task. pause: SIGSTOP, and SIGCONT after a while. preempt: all are asked to leave
    and start again, as when a machine goes. delete, evict: a random pod. Kills use up limits.restarts, which
    new steps fill up again. Ctrl-C ends it, and still reports.
    """
    run = find_run.find(name)
    require_running(run)
    plan = Plan(
        _kinds(kinds, run),
        faults,
        _seconds("--every", every),
        _seconds("--pause", pause, _LONGEST_PAUSE),
        random.SystemRandom().randrange(1 << 31) if seed is None else seed,
    )
    question = f"{plural(faults, 'fault')} ({', '.join(plan.kinds)}) for {run.name}?"
    if not yes and not _agrees(question):
        say("nothing was done", err=True)
        return 1
    with kept_fresh(run) as goes_on:
        chaos = Chaos(run, plan, goes_on)
        if not as_json:
            _show(chaos)
        code = _go(chaos)
    if as_json:
        print_json(chaos.report.to_data())
    else:
        for line in ["", *chaos_report.summary(chaos.report)]:
            say(line)
    return code


def _go(chaos: Chaos) -> int:
    report = chaos.report
    try:
        chaos.go()
    except OarlockError as problem:
        chaos.abandon(str(problem))
    except KeyboardInterrupt:
        chaos.abandon("interrupted")
        return _INTERRUPTED
    return 1 if report.problem or report.failed or report.state in ("failed", "lost") else 0


def _show(chaos: Chaos) -> None:
    say(f"seed {chaos.plan.seed}")
    chaos.begin = lambda elapsed, fault: say(chaos_report.beginning(elapsed, fault), nl=False)
    chaos.end = lambda fault: say(chaos_report.outcome(fault))
    chaos.refuse = lambda why: say(f"{chaos.elapsed:6.1f}s  {why}")


def _kinds(written: str | None, run: RunFolder) -> tuple[str, ...]:
    known = (*KINDS, *POD_KINDS) if run.is_remote else KINDS
    if written is None:
        return known
    chosen = tuple(dict.fromkeys(word.strip() for word in written.split(",") if word.strip()))
    for kind in chosen:
        if kind in POD_KINDS and not run.is_remote:
            raise click.UsageError(f"{kind} is for runs on Kubernetes: {run.name} has no pods")
        if kind not in known:
            raise click.UsageError(f"no such fault: {kind}; there are {', '.join(known)}")
    if not chosen:
        raise click.UsageError(f"--kinds names none; there are {', '.join(known)}")
    return chosen


def _seconds(option: str, written: str, most: float = Duration.LONGEST) -> float:
    try:
        found = Duration.parse(written).seconds
    except ValueError as problem:
        raise click.UsageError(f"{option}: {problem}") from None
    if found > most:
        raise click.UsageError(f"{option}: expected at most {Duration(most)}, found {written}")
    return found


def _agrees(question: str) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: --yes goes ahead without asking")
    return confirm(question)
