"""What a conductor may hear, by name, and what it then wrote to the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.conducted import Conducted


def lose(run: Conducted) -> None:
    run.conductor.leave(run.agents["machine-1"], "closed")
    run.loop.passes("loss of machine-1")


def halt(run: Conducted) -> None:
    """Both trainers leave at their gates."""
    run.outcome("machine-0", "worker-0", 143, ours=True)
    run.outcome("machine-1", "worker-1", 143, ours=True)


def clear(run: Conducted) -> None:
    for name in ("machine-0", "machine-1"):
        run.status(name, cleared=run.machine.number)


def spare(run: Conducted) -> None:
    run.join("machine-2")
    run.status("machine-2")


def stall(run: Conducted) -> None:
    """One step is reported, and none for limits.stall after it."""
    run.event("machine-1", "report", task="worker-1", step=3)
    run.loop.passes("stall")


def twice(call: Callable[[], None]) -> None:
    call()
    call()


MESSAGES: dict[str, Callable[[Conducted], Any]] = {
    "a spare machine joins": spare,
    "an agent reconnects": lambda run: run.join("machine-1"),
    "another takes its place": lambda run: run.join("machine-1", uid="other"),
    "a machine that was given up joins": lambda run: run.join("machine-1", machine="given up"),
    "an agent joins under the leader's name": lambda run: run.join("machine-0", uid="other"),
    "the awaited machine is ready": lambda run: run.status("machine-1", ready=True),
    "a trainer fails": lambda run: run.outcome("machine-1", "worker-1", 1),
    "a trainer is ended by its host": lambda run: run.outcome("machine-1", "worker-1", 143, ours=True),
    "a trainer ends with 0": lambda run: run.outcome("machine-1", "worker-1", 0),
    "the leader task ends with 0": lambda run: run.outcome("machine-0", "worker-0", 0),
    "both trainers halt": halt,
    "one machine has cleared": lambda run: run.status("machine-1", cleared=run.machine.number),
    "all machines have cleared": clear,
    "a machine is asked to leave": lambda run: run.status("machine-1", leaving=True, ready=False),
    "a connection is cut": lambda run: run.conductor.leave(run.agents["machine-1"], "closed"),
    "an agent is lost": lose,
    "an agent says goodbye": lambda run: run.conductor.leave(run.agents["machine-1"], "bye", for_good=True),
    "a step is reported": lambda run: run.event("machine-1", "report", task="worker-1", step=3),
    "a machine can run no tasks": lambda run: run.event("machine-1", "never_ready", text="no room"),
    "an agent notes something": lambda run: run.event("machine-1", "note", text="hello"),
    "an agent speaks for another's task": lambda run: run.event("machine-1", "error", task="worker-0"),
    "the user stops": lambda run: run.conductor.on_user_stop(),
    "the user stops twice": lambda run: twice(run.conductor.on_user_stop),
    "the machine has to leave": lambda run: run.conductor.on_preempted(),
    "the machine has to leave at once": lambda run: run.conductor.leave_now(),
    "it is scaled down": lambda run: run.ask(ask="scale", workers=1),
    "stacks are requested": lambda run: run.ask(ask="stacks"),
    "a task is killed on purpose": lambda run: run.ask(
        ask="fault", do="kill", task="worker-1", generation=run.machine.number
    ),
    "the gang is preempted on purpose": lambda run: run.ask(
        ask="fault", do="preempt", generation=run.machine.number
    ),
    "limits.runtime passes": lambda run: run.loop.passes("runtime"),
    "limits.rendezvous passes": lambda run: run.loop.passes("rendezvous"),
    "no more steps are reported": stall,
    "the grace of a halt passes": lambda run: run.loop.passes("halt"),
}


def fields(run: Conducted, kind: str) -> dict[str, Any]:
    return next(fields for found, fields in run.journal.events if found == kind)
