"""`oarlock inspect`: a shell beside what a run has written so far."""

from __future__ import annotations

import os

import click

from oarlock.agent.protocol.pod_paths import STORE
from oarlock.cli.arguments.command_words import WithCommand
from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import known, streams
from oarlock.cli.session.signals import leaving_in_order
from oarlock.records import runs
from oarlock.screens.output import say

# Into the run's folder if there is one yet; $0 is that, $1 the terminal's name.
_ENTER = f'cd "$0" 2>/dev/null || cd {STORE} || exit; TERM=$1; export TERM; shift; exec "$@"'
_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec /bin/sh")


@click.command("inspect", cls=WithCommand)
@run_argument
@click.option("--write", is_flag=True, help="On a cluster: be able to change what is there.")
@click.option("--image", metavar="IMAGE", help="On a cluster: for the shell. Default: the leader's.")
@json_option("code, stdout and stderr of COMMAND as JSON")
def verb(name: str | None, write: bool, image: str | None, as_json: bool, words: tuple[str, ...]) -> int:
    """Open a shell beside what a run has written so far.

    It may be under way or long over. On a cluster a small pod mounts the run's claim on its leader's node,
    read-only, and goes when the shell ends; the run is not disturbed. With COMMAND that instead of a shell.
    """
    if as_json and not words:
        raise click.UsageError("--json is for a COMMAND: oarlock inspect [RUN] --json -- ls checkpoints")
    run = known.find(name)
    if run.is_remote:
        return _on_cluster(run, write, image, as_json, words)
    if image:
        raise click.UsageError(f"{run.name} ran on this machine; --image is for a run on a cluster")
    return _here(run, as_json, words)


def _here(run: runs.RunFolder, as_json: bool, words: tuple[str, ...]) -> int:
    words = words or (os.environ.get("SHELL") or "/bin/sh",)
    if as_json:
        return streams.here_as_json(words, str(run.path))
    from oarlock.engines.local import enter_task

    return enter_task.enter({"words": list(words), "cwd": str(run.path), "env": {}, "pid": None})


def _on_cluster(
    run: runs.RunFolder, write: bool, image: str | None, as_json: bool, words: tuple[str, ...]
) -> int:
    from oarlock.engines.kubernetes import kubernetes_engine
    from oarlock.engines.kubernetes.claims import claim_session
    from oarlock.engines.kubernetes.claims.claim_pod import Purpose

    folder = run.spec().folder
    purpose = Purpose("inspect", claim_session.IDLE, is_writable=write, image=image, memory=("64Mi", "1Gi"))
    entering = ["/bin/sh", "-c", _ENTER, folder, streams.term(), *(words or _SHELL)]
    with leaving_in_order(), kubernetes_engine.told():
        api = kubernetes_engine.api_of(run)
        with claim_session.beside(api, run, purpose) as pod:
            if streams.is_on_terminal() and not words:
                what = "what you change is changed" if write else "read-only"
                say(f"beside the claim of {run.name}, {what}; `exit` leaves", err=True)
            return streams.in_pod(api, pod, entering, as_json=as_json, types=not words)
