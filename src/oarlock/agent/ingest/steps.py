"""What an ingest does before and after its program, as a task of its own: both may take long and block.

    python -m oarlock.agent.ingest.steps prepare '{"target": ...}'    clear leftovers, fetch the sources
    python -m oarlock.agent.ingest.steps seal '{"target": ...}'       flush, mark as complete, move into place

The stage (`stage`) starts it, and holds the lock of the data folder in the meantime.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, field
from pathlib import Path

from oarlock.agent.ingest.data_folder import DataFolder
from oarlock.agent.ingest.fetch import FetchError, IngestSource, fetch
from oarlock.agent.protocol.spec import IngestSpec, Program, Spec
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.typed import build
from oarlock.training.task import channel

_MODULE = "oarlock.agent.ingest.steps"  # this one; `__name__` is `__main__` in the task
_SAYS = 10.0  # seconds between two lines about a download


@dataclass(frozen=True)
class IngestOrder:
    """The arguments of the steps."""

    target: str
    key: str
    run: str
    cwd: str  # the folder of relative paths among the sources
    has_program: bool  # otherwise the sources are the data
    sources: dict[str, str] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return it as the argument of a step."""
        return json.dumps(asdict(self))


def programs(spec: Spec, ingest: IngestSpec, folder: DataFolder) -> list[Program]:
    """Return what an ingest runs, one after the other. The caller holds the lock of the folder."""
    order = IngestOrder(
        target=str(folder.target),
        key=ingest.key,
        run=spec.run,
        cwd=spec.cwd,
        has_program=ingest.program is not None,
        sources=ingest.sources,
        checksums=ingest.checksums,
    ).to_json()
    return [
        Program("module", _MODULE, ["prepare", order]),
        *([] if ingest.program is None else [ingest.program]),
        Program("module", _MODULE, ["seal", order]),
    ]


def main(words: list[str]) -> int:
    """Run one step. Returns its exit code."""
    step, order = words[0], build(IngestOrder, json.loads(words[1]))
    folder = DataFolder(Path(order.target))
    try:
        if step == "prepare":
            folder.begin()
            _fetch(order, folder.sources)
            if not order.has_program:
                folder.take_sources()
        else:
            files, size = folder.seal(order.run, order.key)
            print(f"ingest: {files} files, {size:,} bytes in {folder.target}", flush=True)
    except FetchError as problem:
        return _fail("FetchError", str(problem))
    except OSError as problem:
        return _fail("OSError", f"{problem.filename or folder.work}: {problem.strerror}")
    return 0


def _fetch(order: IngestOrder, into: Path) -> None:
    for number, (name, url) in enumerate(order.sources.items(), 1):
        here = url if "://" in url else str(Path(order.cwd, Path(url).expanduser()))
        source = IngestSource(name=name, url=here, sha256=order.checksums.get(name))
        said = time.monotonic()

        def tell(done: int, total: int | None, name: str = name) -> None:
            nonlocal said
            channel.report({"step": done, **({} if total is None else {"total": total})})
            if time.monotonic() - said > _SAYS:
                said = time.monotonic()
                of = "" if total is None else f" of {total:,}"
                print(f"ingest: {name}: {done:,}{of} bytes", flush=True)

        fetch(source, into / name, progress=tell)
        print(f"ingest: source {number} of {len(order.sources)}: {name}", flush=True)


def _fail(kind: str, message: str) -> int:
    """Report the reason to the agent without a traceback: none of this is the program's code."""
    print(f"oarlock: {message}", file=sys.stderr, flush=True)
    channel.send({"kind": "error", "type": kind, "message": message, "where": None})
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
