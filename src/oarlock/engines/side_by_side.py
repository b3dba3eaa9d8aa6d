"""TensorBoard on this machine, for one run or several, whichever engine runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from oarlock.engines import recorded_board
from oarlock.engines.engine import engine_of
from oarlock.engines.shared import tensorboard_process
from oarlock.engines.shared.tensorboard_process import Board
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder


@contextmanager
def board(runs: Sequence[RunFolder], port: int | None, notify: Callable[[str], None]) -> Iterator[Board]:
    """Run TensorBoard on what the runs have reported, and follow them, inside a `with` block.

    `notify` is called with why a run cannot be followed: then it is shown as it was last seen. Raises
    OarlockError if TensorBoard is not installed.
    """
    with ExitStack() as stack:
        gathered = stack.enter_context(recorded_board.gathered(runs))
        folders = [str(gathered.folder), *(f"{run}/LOG_DIR:{url}" for run, url in gathered.urls.items())]
        served = stack.enter_context(tensorboard_process.serving(",".join(folders), port))
        followed = [run for run in runs if not run.state().is_over]
        live = {run.name: stack.enter_context(engine_of(run).following(run)) for run in followed}

        def check() -> None:
            for name in list(live):
                try:
                    live[name]()
                except OarlockError as problem:
                    notify(f"{problem}; {name} is shown as it was last seen")
                    del live[name]
            gathered.refresh()
            served.check()

        yield Board(served.port, check)
