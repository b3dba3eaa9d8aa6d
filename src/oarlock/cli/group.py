"""The group of all verbs, which knows their one-line help without importing any of them.

A verb's function may return its exit code; None counts as 0.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from oarlock.screens.output import say

if TYPE_CHECKING:  # only the shell's completion needs it
    from click.shell_completion import CompletionItem

# In the order of --help. A test holds these against the first line of each verb's docstring.
VERBS = {
    "run": "Train: run a program, a job file or a folder.",
    "ingest": "Prepare the data of a job, without training.",
    "ps": "List runs, newest first.",
    "status": "Show everything that is known about a run.",
    "logs": "Print the output of a run's tasks.",
    "attach": "Follow a run that is running.",
    "stacks": "Show the Python stack of every task of a run.",
    "inspect": "Open a shell, or run a command, beside the files of a run.",
    "exec": "Run a command beside a task of a run.",
    "tensorboard": "Show runs in TensorBoard, side by side, until Ctrl-C.",
    "serve": "Serve a trained model: answer requests over HTTP.",
    "predict": "Ask a trained model, and print its answers.",
    "scale": "Change how many workers, or replicas of a server, there are.",
    "evaluate": "Score a checkpoint of a run with its evaluator.",
    "checkpoints": "List the checkpoints of a run; verify or delete them.",
    "chaos": "Kill, pause and preempt tasks; report how the run recovers.",
    "stop": "Stop a run: ask its tasks to end, then kill them.",
    "delete": "Delete runs and everything they kept.",
    "events": "Print the events of a run.",
    "plan": "Show what a run would create on a cluster, and whether it fits.",
    "render": "Print a run, or a served model, as YAML for `kubectl apply`.",
    "pull": "Copy the model and other files of a run to this machine.",
    "init": "Write a commented job.yaml for a program.",
    "schema": "Print the JSON schema of job files.",
    "doctor": "Check what works on this machine or on a cluster.",
    "version": "Print the version.",
}
_HELP = """Distributed training from one job file, on this machine or on a Kubernetes cluster.

RUN is the name of a run, or the beginning of its name. By default it is the newest run.
"""
_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports it


class Verbs(click.Group):
    """The command `oarlock`. It imports a verb only when that verb is called."""

    def __init__(self) -> None:
        version = click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help=VERBS["version"],
        )
        super().__init__(
            "oarlock", help=_HELP, params=[version], invoke_without_command=True, callback=_alone
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs in the order of --help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        verb: click.Command = importlib.import_module(f"oarlock.cli.verbs.{cmd_name}").verb
        return verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a verb; raise UsageError with the nearest one."""
        if args[0] not in VERBS and not ctx.resilient_parsing:
            raise click.UsageError(_no_such_verb(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs into --help."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a verb."""
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; end quietly if nothing reads its output any more."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            # `oarlock logs | head`: the reader is gone, and the flush at the end must not complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _BROKEN_PIPE


@click.pass_context
def _alone(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        say(ctx.get_help(), lines=True)


def _no_such_verb(name: str) -> str:
    from oarlock.wording import nearest

    near = nearest(name, VERBS)
    return f"no such verb: {name}" + (f"; did you mean {near}?" if near else "")


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from oarlock import __version__

        say(f"oarlock {__version__}")
        ctx.exit()
