"""What the leading agent fetches before the first generation: the run's newest snapshot, or the weights of
another run to start with."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.record.run_record import Record
from oarlock.agent.snapshots.children import Child
from oarlock.agent.snapshots.snapshot_messages import (
    Begin,
    Download,
    Downloaded,
    Failed,
    Line,
    MissingPackage,
    Note,
    Order,
)
from oarlock.checkpoints.initial_weights import BEGINS, UNUSED
from oarlock.system import processes


@dataclass
class Fetched:
    """The result of a fetch."""

    generation: int = 0  # of the snapshot that is now the newest checkpoint; 0 if none was needed
    failed: str | None = None  # why the run cannot start
    signal: int | None = None  # received by the agent during the fetch


def fetch(loop: Loop, spec: Spec, record: Record) -> Fetched:
    """Fetch the newest snapshot into the checkpoints folder, unless that has a newer checkpoint. If the
    folder is still empty, fetch the weights that the job names."""
    fetched, folder = Fetched(), spec.folders.get("checkpoints", "")
    patience = spec.limits.rendezvous
    if spec.snapshots:
        is_new = spec.is_new and not record.state.generation
        order = Download(spec.snapshots, spec.run, folder, patience, is_new)
        _let(loop, spec, record, "downloader", order, fetched)
    if spec.weights and not spec.is_ingest_alone and fetched.failed is None and fetched.signal is None:
        _let(loop, spec, record, "weights_fetch", Begin(spec.weights, spec.run, folder, patience), fetched)
    return fetched


def unused_weights(spec: Spec, record: Path) -> str | None:
    """A note for a run that should start with weights, but whose program never loaded them, and that had no
    checkpoints of its own."""
    if not spec.weights or spec.is_ingest_alone:
        return None
    try:
        events = (record / "events.jsonl").read_text(errors="replace")
    except OSError:
        return None
    if BEGINS in events or UNUSED in events:
        return None
    return (
        f"the program did not start from the weights of {spec.weights}: "
        "only oarlock.State and oarlock.keras.callbacks(model) take them"
    )


def _let(loop: Loop, spec: Spec, record: Record, module: str, order: Order, fetched: Fetched) -> None:
    """Have a child process carry out the order. Wait until it ends or a signal comes."""
    ended: list[bool] = []

    def on_line(line: Line) -> None:
        if isinstance(line, Note):
            record.emit("note", text=line.text)
        elif isinstance(line, Downloaded):
            fetched.generation = line.generation
        elif isinstance(line, MissingPackage):
            fetched.failed = line.reason(spec.brings_crew)
        elif isinstance(line, Failed):
            fetched.failed = line.reason

    def on_signal(number: int) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            fetched.signal = number

    loop.on_signals([signal.SIGINT, signal.SIGTERM], on_signal)
    child = Child(loop, spec, module, on_line, lambda: ended.append(True))
    child.send(order)
    while not ended and fetched.signal is None:
        loop.turn()
    if ended:
        code = child.process.wait()
        if code and fetched.failed is None:
            fetched.failed = f"the process that fetches snapshots ended with {processes.shell_code(code)}"
    child.close()
