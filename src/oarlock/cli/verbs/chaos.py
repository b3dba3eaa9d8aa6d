"""`oarlock chaos`: inflict faults on a run, and report how it recovers."""

from __future__ import annotations

import random

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.chaos_run import chaos_report
from oarlock.cli.chaos_run.faults_drawn import KINDS, POD_KINDS
from oarlock.cli.chaos_run.inflict import Chaos, Plan
from oarlock.cli.session import find_run
from oarlock.cli.session.ask_agent import require_running
from oarlock.engines.engine import engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.errors import OarlockError
from oarlock.quantities import Duration
from oarlock.records.run_folder import RunFolder
from oarlock.screens.output import confirm, print_json, say
from oarlock.units import plural

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
    help="The average wait from recovery to the next fault; each is 0.5 to 1.5 times as long.",
)
@click.option(
    "--kinds",
    metavar="KIND,...",
    help="Any of kill, pause, preempt; on Kubernetes also delete, evict. Default: all.",
)
@click.option("--pause", default="5s", show_default=True, metavar="TIME", help="How long a task is paused.")
@click.option("--seed", type=int, metavar="N", help="The same seed gives the same faults. Default: random.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
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
    """Kill, pause and preempt tasks; report how the run recovers.

    kill: SIGKILL a random task. pause: SIGSTOP a random task, and SIGCONT it later. preempt: ask all tasks to
    end and restart them, as when a machine is taken away. delete, evict: remove a random pod. Kills count
    against limits.restarts, which progress refills. Ctrl-C ends the session and still reports.
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
    question = f"inflict {plural(faults, 'fault')} ({', '.join(plan.kinds)}) on {run.name}?"
    if not yes and not confirm(question):
        say("no fault was inflicted", err=True)
        return 1
    with engine_of(run).following(run) as is_live:
        chaos = Chaos(run, plan, is_live)
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
    known = (*KINDS, *traits_of(run).pod_faults)
    if written is None:
        return known
    chosen = tuple(dict.fromkeys(word.strip() for word in written.split(",") if word.strip()))
    for kind in chosen:
        if kind in POD_KINDS and kind not in known:
            raise click.UsageError(f"{kind} is for runs on Kubernetes: {run.name} has no pods")
        if kind not in known:
            raise click.UsageError(f"no such fault: {kind}; expected any of {', '.join(known)}")
    if not chosen:
        raise click.UsageError(f"--kinds is empty; expected any of {', '.join(known)}")
    return chosen


def _seconds(option: str, written: str, most: float = Duration.LONGEST) -> float:
    try:
        found = Duration.parse(written).seconds
    except ValueError as problem:
        raise click.UsageError(f"{option}: {problem}") from None
    if found > most:
        raise click.UsageError(f"{option}: expected at most {Duration(most)}, found {written}")
    return found
