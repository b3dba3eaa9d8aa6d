"""How much memory does the launcher itself take? Our agent and zygote with two tasks, beside torchrun.

    .venv/bin/python bench/memory.py [--repeats N] [--json]

Resident memory (RSS) while the tasks step. A page that several processes share counts fully in the RSS of
each, so for all processes of a run together the proportional size (PSS) is given: every page once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from arena import Arena, arena, oarlock_run, plainly, torchrun
from question import Question, Row, main, progress

from oarlock.system import processes

_TASKS = 2
_ENDLESS = ("--steps", "1000000000")
_PROGRAMS = {
    "plain Python": "plain.py",
    "PyTorch": "torch_ddp.py",
    "TensorFlow": "tensorflow_mirrored.py",
    "JAX": "jax_parallel.py",
}


def measure(repeats: int) -> list[Row]:
    return [row for name in _PROGRAMS for row in _rows(name, repeats)]


def _rows(name: str, repeats: int) -> list[Row]:
    progress(f"memory, {name}")
    program = _PROGRAMS[name]
    agents, zygotes, together = zip(*(_of_a_run(program) for _ in range(repeats)))
    launchers: Sequence[float] = ()
    theirs: Sequence[float] = ()
    against = ""
    if name == "PyTorch":
        launchers, theirs = zip(*(_of_torchrun(program) for _ in range(repeats)))
        against = "`torchrun`"
    elif name == "TensorFlow":
        theirs = [_of_plain(program) for _ in range(repeats)]
        against = "plain processes"
    return [
        Row(f"{name}: agent", "MB", agents, launchers, against if launchers else ""),
        Row(f"{name}: zygote", "MB", zygotes),
        Row(f"{name}: all processes together", "MB", together, theirs, against),
    ]


def _of_a_run(program: str) -> tuple[float, float, float]:
    """Agent, zygote, and all there is of the run but its client."""
    with _stepping(lambda place: oarlock_run(place, program, _TASKS, *_ENDLESS)) as place:
        [agent] = [event["pid"] for event in place.events() if event["kind"] == "agent"]
        below = processes.descendants(agent)  # parents first: the zygote, then the tasks
        return _resident(agent), _resident(below[0]), _together([agent, *below])


def _of_torchrun(program: str) -> tuple[float, float]:
    """The launcher, and all there is of the run."""
    with _stepping(lambda place: torchrun(place, program, _TASKS, *_ENDLESS)) as place:
        launcher = place.processes[0].pid
        return _resident(launcher), _together([launcher, *processes.descendants(launcher)])


def _of_plain(program: str) -> float:
    with _stepping(lambda place: plainly(place, program, _TASKS, *_ENDLESS)) as place:
        return _together([process.pid for process in place.processes])


@contextmanager
def _stepping(start: Callable[[Arena], None]) -> Iterator[Arena]:
    with arena() as place:
        start(place)
        place.wait(lambda: place.marks("first"), "first step")
        yield place


def _resident(pid: int) -> float:
    return _megabytes(Path(f"/proc/{pid}/status"), "VmRSS:")


def _together(pids: Sequence[int]) -> float:
    return sum(_megabytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") for pid in pids)


def _megabytes(file: Path, field: str) -> float:
    [kilobytes] = [line.split()[1] for line in file.read_text().splitlines() if line.startswith(field)]
    return int(kilobytes) / 1000


QUESTION = Question("memory", "Memory", measure, repeats=1)

if __name__ == "__main__":
    main([QUESTION], __doc__)
