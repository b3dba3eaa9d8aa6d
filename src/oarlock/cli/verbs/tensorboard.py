"""`oarlock tensorboard`: what runs report, and what they write to LOG_DIR, in a browser."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import find_run
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines import recorded_board, side_by_side
from oarlock.engines.engine import engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.engines.shared import tensorboard_process
from oarlock.engines.shared.tensorboard_process import Board
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.screens.output import complain, print_json_line, say
from oarlock.system.polling import wait_for

_PATIENCE = 120.0  # seconds for it to answer
_POLL = 0.2
_INTERVAL = 2.0  # seconds between two checks that it still runs


@click.command("tensorboard")
@click.argument("names", metavar="[RUN...]", nargs=-1, shell_complete=run_names)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="The port on this machine. Default: 6006, or a free one.",
)
@click.option("--image", metavar="IMAGE", help="On a cluster: an image that has it. Default: the leader's.")
@click.option("--deploy", is_flag=True, help="On a cluster: deploy one, as a Deployment and a Service.")
@click.option(
    "--ingress", metavar="HOST", help="With --deploy: also an Ingress, for access from outside the cluster."
)
@click.option("--delete", is_flag=True, help="Delete the one that --deploy created.")
@json_option("its URL as JSON, on the first line")
def verb(
    names: Sequence[str],
    port: int | None,
    image: str | None,
    deploy: bool,
    ingress: str | None,
    delete: bool,
    as_json: bool,
) -> int:
    """Show runs in TensorBoard, side by side, until Ctrl-C.

    It shows what each run reports and what its program writes to LOG_DIR. If a program on a cluster writes
    there, TensorBoard runs in a temporary pod that mounts the run's claim, behind a port of this machine.

    With --deploy it runs in the run's namespace until --delete, or until the run is deleted. It has no
    passwords: whoever can connect to it can read it.
    """
    if deploy and delete:
        raise click.UsageError("--deploy creates one, and --delete deletes it: give one of them")
    if ingress and not deploy:
        raise click.UsageError("--ingress is for --deploy")
    if port and (deploy or delete):
        raise click.UsageError("--port is for a TensorBoard on this machine")
    runs = list(dict.fromkeys(map(find_run.find, names))) or [find_run.find(None)]
    if len(runs) > 1 and (deploy or delete or image):
        option = "--deploy" if deploy else "--delete" if delete else "--image"
        raise click.UsageError(
            f"{option} is for one run; several are shown by the TensorBoard of this machine"
        )
    if deploy:
        return _deploy(runs[0], image, ingress, as_json)
    if delete:
        return _delete(runs[0], as_json)
    return _show(runs, port, image, as_json)


def _show(runs: Sequence[RunFolder], port: int | None, image: str | None, as_json: bool) -> int:
    with leaving_in_order():
        try:
            with _board(runs, port, image) as board:
                _wait(board)
                _print(runs, f"http://127.0.0.1:{board.port}/", as_json)
                while True:
                    time.sleep(_INTERVAL)
                    board.check()
        except KeyboardInterrupt:
            return 0


def _deploy(run: RunFolder, image: str | None, host: str | None, as_json: bool) -> int:
    with leaving_in_order():
        board = engine_of(run).deploy_board(run, image, host)
    if as_json:
        print_json_line({"url": board.address, "new": board.is_new, "forward": board.forward})
        return 0
    word = "deployed" if board.is_new else "already deployed"
    say(f"{run.name}: TensorBoard is {word}: {board.address}")
    say(f"  from here:  {board.forward}")
    say(f"  delete it:  oarlock tensorboard --delete {run.name}")
    return 0


def _delete(run: RunFolder, as_json: bool) -> int:
    was_there = engine_of(run).delete_board(run)
    if as_json:
        print_json_line({"deleted": was_there})
    else:
        say(
            f"deleted the TensorBoard of {run.name}"
            if was_there
            else f"{run.name} has no deployed TensorBoard"
        )
    return 0


def _board(runs: Sequence[RunFolder], port: int | None, image: str | None) -> AbstractContextManager[Board]:
    if len(runs) == 1 and (image or not _is_shown_from_here(runs[0])):
        return engine_of(runs[0]).tensorboard(runs[0], port, image)
    for run in runs:
        if not traits_of(run).files_are_here and recorded_board.has_own_files(run):
            say(
                f"what the program of {run.name} itself writes to LOG_DIR is not shown here: "
                f"`oarlock tensorboard {run.name}` alone shows it",
                err=True,
            )
    return side_by_side.board(runs, port, complain)


def _is_shown_from_here(run: RunFolder) -> bool:
    """Whether all there is to see is on this machine: for a run elsewhere, if it has nothing but reports."""
    if traits_of(run).files_are_here:
        return True
    if not tensorboard_process.is_installed():
        return False
    return recorded_board.has_reports(run) and not recorded_board.has_own_files(run)


def _wait(board: Board) -> None:
    def answers() -> bool:
        board.check()
        return tensorboard_process.answers(board.port)

    try:
        wait_for(answers, "answer from TensorBoard", _PATIENCE, every=_POLL)
    except TimeoutError as late:
        raise OarlockError(str(late)) from None


def _print(runs: Sequence[RunFolder], url: str, as_json: bool) -> None:
    if as_json:
        print_json_line({"url": url})
    else:
        say(f"{', '.join(run.name for run in runs)}: {url}   Ctrl-C ends it")
    sys.stdout.flush()
