"""`oarlock tensorboard`: what a run writes to LOG_DIR, in a browser."""

from __future__ import annotations

import sys
import time

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.engine import Board, engine_of
from oarlock.engines.shared import tensorboard_process
from oarlock.errors import OarlockError
from oarlock.screens.output import print_json_line, say
from oarlock.system.polling import wait_for

_PATIENCE = 120.0  # seconds for it to answer
_POLL = 0.2
_INTERVAL = 2.0  # seconds between two checks that it still runs


@click.command("tensorboard")
@run_argument
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="On this machine. Default: 6006, or a free one.",
)
@click.option("--image", metavar="IMAGE", help="On a cluster: an image that has it. Default: the leader's.")
@json_option("its URL as JSON, on the first line")
def verb(name: str | None, port: int | None, image: str | None, as_json: bool) -> int:
    """Show a run in TensorBoard until Ctrl-C.

    It reads everything below the run's LOG_DIR. For a run on a cluster it runs in a temporary pod that mounts
    the run's claim, behind a port of this machine.
    """
    run = find_run.recorded(name)
    with leaving_in_order():
        try:
            with engine_of(run).tensorboard(run, port, image) as board:
                _wait(board)
                _print(run.name, f"http://127.0.0.1:{board.port}/", as_json)
                while True:
                    time.sleep(_INTERVAL)
                    board.check()
        except KeyboardInterrupt:
            return 0


def _wait(board: Board) -> None:
    def answers() -> bool:
        board.check()
        return tensorboard_process.answers(board.port)

    try:
        wait_for(answers, "answer from TensorBoard", _PATIENCE, every=_POLL)
    except TimeoutError as late:
        raise OarlockError(str(late)) from None


def _print(name: str, url: str, as_json: bool) -> None:
    if as_json:
        print_json_line({"url": url})
    else:
        say(f"{name}: {url}   Ctrl-C ends it")
    sys.stdout.flush()
