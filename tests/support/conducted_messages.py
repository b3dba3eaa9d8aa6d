"""What a conductor may hear, by name, and what it then wrote to the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oarlock.agent.protocol.gates import Whereabouts
from tests.support.conducted import FOLDER, Conducted

SCORE = {"t": 1000.0, "kind": "report", "task": "evaluator-0", "step": 10, "generation": 1, "loss": 1.0}


def lose(run: Conducted) -> None:
    run.conductor.leave(run.agents["machine-1"], "closed")
    run.loop.passes("loss of machine-1")


def cut_and_reconnect(run: Conducted) -> None:
    run.conductor.leave(run.agents["machine-1"], "closed")
    run.join("machine-1")


def say_goodbye_and_clear(run: Conducted) -> None:
    """What the one that left did is no failure, if no other was told before."""
    run.conductor.leave(run.agents["machine-1"], "bye", for_good=True)
    run.status("machine-0", cleared=run.machine.number)


def stop_after_a_step(run: Conducted) -> None:
    run.event("machine-1", "report", task="worker-1", step=3)
    run.conductor.on_user_stop()


def halt(run: Conducted) -> None:
    """Both trainers leave at their gates."""
    run.outcome("machine-0", "worker-0", 143, ours=True)
    run.outcome("machine-1", "worker-1", 143, ours=True)


def clear(run: Conducted) -> None:
    for name in ("machine-0", "machine-1", "machine-3"):
        if name in run.agents:
            run.status(name, cleared=run.machine.number)


def clear_but_stay_busy(run: Conducted) -> None:
    run.status("machine-1", ready=False)
    clear(run)


def spare(run: Conducted) -> None:
    run.join("machine-2")
    run.status("machine-2")


def stall(run: Conducted) -> None:
    """One step is reported, and none for limits.stall after it."""
    run.event("machine-1", "report", task="worker-1", step=3)
    run.loop.passes("stall")


def nothing_happens(run: Conducted) -> None:
    run.event("machine-1", "alive")
    run.loop.passes("stuck")


def nothing_but_a_step_happens(run: Conducted) -> None:
    """A program that reports steps has a deadline of its own."""
    run.event("machine-1", "report", task="worker-1", step=3)
    nothing_happens(run)


def something_happens_again(run: Conducted) -> None:
    nothing_happens(run)
    run.event("machine-1", "alive")


def make_a_folder_and_reconnect(run: Conducted) -> None:
    run.status("machine-0", made=FOLDER)
    run.join("machine-1")


def come_to_a_gate(run: Conducted, where: Whereabouts) -> None:
    """If it has one."""
    if "worker-1" in run.gates:
        run.gates["worker-1"] = where
        run.outcome("machine-1", "worker-1", None)


def never_ready_without_tasks(run: Conducted) -> None:
    """Its task has ended, and the run has not heard of it."""
    run.status("machine-1", tasks=())
    run.event("machine-1", "never_ready", text="no room")


def never_ready_spare(run: Conducted) -> None:
    run.join("machine-2")
    run.event("machine-2", "never_ready", text="no room")


def still_preparing(run: Conducted) -> None:
    run.status("machine-1", preparing=True)
    run.loop.passes("rendezvous")


def gpus_twice(run: Conducted) -> None:
    """The second figures come too soon after the first."""
    for _ in range(2):
        run.event("machine-1", "gpu", task="worker-1", busy=50)


def fault(run: Conducted, do: str, task: str = "worker-1", **more: Any) -> None:
    run.ask(**{"ask": "fault", "do": do, "task": task, "generation": run.machine.number, **more})


def pause_and_wait(run: Conducted) -> None:
    """The report after a pause is recorded, however short ago the last one was."""
    run.event("machine-1", "report", task="worker-1", step=3)
    fault(run, "pause", seconds=0.0)
    run.loop.passes("a pause")
    run.event("machine-1", "report", task="worker-1", step=4)


def begin_in_vain(run: Conducted, before: str | None = None) -> None:
    """A leading agent gives up only as it begins."""
    if run.phase == "gathering":
        if before is not None:
            run.journal.end(before, 0)
        run.conductor.give_up("no room")


def of_evaluator(call: Callable[[Conducted], None]) -> Callable[[Conducted], None]:
    """Where there is one."""
    return lambda run: call(run) if "machine-3" in run.agents else None


def evaluator_keeps_failing(run: Conducted) -> None:
    for launch in (1, 2, 3):
        run.outcome("machine-3", "evaluator-0", 1, signal=9, follows=True, launch=launch)


def lose_evaluator(run: Conducted) -> None:
    run.conductor.leave(run.agents["machine-3"], "closed")
    run.loop.passes("loss of machine-3")


def score(run: Conducted, code: int | None) -> None:
    run.outcome("machine-3", "evaluator-0", code, follows=True, scores=(SCORE,))


def twice(call: Callable[[], None]) -> None:
    call()
    call()


MESSAGES: dict[str, Callable[[Conducted], Any]] = {
    "a spare machine joins": spare,
    "an agent reconnects": lambda run: run.join("machine-1"),
    "an agent reconnects after a cut": cut_and_reconnect,
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
    "all machines have cleared, one is not ready": clear_but_stay_busy,
    "the leader task makes a folder": lambda run: run.status("machine-0", made=FOLDER),
    "another task makes a folder": lambda run: run.status("machine-1", made=FOLDER),
    "an agent reconnects after a folder was made": make_a_folder_and_reconnect,
    "a trainer asks at its gate": lambda run: come_to_a_gate(run, Whereabouts(1, asks=1)),
    "a trainer says where it is": lambda run: come_to_a_gate(run, Whereabouts(1, meeting=1, step=4)),
    "the evaluator scores": of_evaluator(lambda run: score(run, None)),
    "the evaluator scores and ends": of_evaluator(lambda run: score(run, 0)),
    "the evaluator fails": of_evaluator(lambda run: run.outcome("machine-3", "evaluator-0", 1, follows=True)),
    "the evaluator keeps failing": of_evaluator(evaluator_keeps_failing),
    "the evaluator reports a step": of_evaluator(
        lambda run: run.event("machine-3", "report", task="evaluator-0", step=3)
    ),
    "the evaluator's machine is asked to leave": of_evaluator(
        lambda run: run.status("machine-3", leaving=True, ready=False)
    ),
    "the evaluator's machine is lost": of_evaluator(lose_evaluator),
    "the evaluator's machine says goodbye": of_evaluator(
        lambda run: run.conductor.leave(run.agents["machine-3"], "bye", for_good=True)
    ),
    "a machine is asked to leave": lambda run: run.status("machine-1", leaving=True, ready=False),
    "a connection is cut": lambda run: run.conductor.leave(run.agents["machine-1"], "closed"),
    "an agent is lost": lose,
    "an agent says goodbye": lambda run: run.conductor.leave(run.agents["machine-1"], "bye", for_good=True),
    "an agent says goodbye, the other clears": say_goodbye_and_clear,
    "a step is reported": lambda run: run.event("machine-1", "report", task="worker-1", step=3),
    "a machine can run no tasks": lambda run: run.event("machine-1", "never_ready", text="no room"),
    "a machine without tasks can run none": never_ready_without_tasks,
    "a spare machine can run no tasks": never_ready_spare,
    "a task is alive": lambda run: run.event("machine-1", "alive"),
    "nothing happens": nothing_happens,
    "nothing but a step happens": nothing_but_a_step_happens,
    "something happens again": something_happens_again,
    "an ingest reports": lambda run: run.event("machine-1", "report", task="ingest-machine-1", step=3),
    "another machine's ingest reports": lambda run: run.event(
        "machine-1", "report", task="ingest-machine-0", step=3
    ),
    "a machine is warm": lambda run: run.event("machine-1", "ready", warm=True),
    "a task has figures of GPUs": gpus_twice,
    "a task reports an error": lambda run: run.event("machine-1", "error", task="worker-1", type="E"),
    "a task has started": lambda run: run.event("machine-1", "task", task="worker-1", state="started"),
    "a task warns": lambda run: run.event("machine-1", "warning", task="worker-1", text="slow"),
    "a task has saved": lambda run: run.event("machine-1", "checkpoint", task="worker-1", step=3),
    "an agent notes something": lambda run: run.event("machine-1", "note", text="hello"),
    "an agent speaks for another's task": lambda run: run.event("machine-1", "error", task="worker-0"),
    "the user stops": lambda run: run.conductor.on_user_stop(),
    "the user stops after a step": stop_after_a_step,
    "the user stops twice": lambda run: twice(run.conductor.on_user_stop),
    "the machine has to leave": lambda run: run.conductor.on_preempted(),
    "the run cannot begin": lambda run: begin_in_vain(run),
    "the run has a verdict as it begins": lambda run: begin_in_vain(run, before="succeeded"),
    "the machine has to leave at once": lambda run: run.conductor.leave_now(),
    "it is scaled down": lambda run: run.ask(ask="scale", workers=1),
    "stacks are requested": lambda run: run.ask(ask="stacks"),
    "something unknown is requested": lambda run: run.ask(ask="nonsense"),
    "a task is killed on purpose": lambda run: fault(run, "kill"),
    "a task of another generation is killed": lambda run: fault(run, "kill", generation=7),
    "a task is paused on purpose": lambda run: fault(run, "pause", seconds=5.0),
    "a task reports after a pause": pause_and_wait,
    "a task is continued on purpose": lambda run: fault(run, "continue"),
    "the evaluator is killed on purpose": of_evaluator(lambda run: fault(run, "kill", "evaluator-0")),
    "the evaluator is paused on purpose": of_evaluator(
        lambda run: fault(run, "pause", "evaluator-0", seconds=5.0)
    ),
    "a pod is deleted on purpose": lambda run: run.ask(ask="fault", do="delete", pod="r-worker-1"),
    "the gang is preempted on purpose": lambda run: fault(run, "preempt"),
    "limits.runtime passes": lambda run: run.loop.passes("runtime"),
    "limits.rendezvous passes": lambda run: run.loop.passes("rendezvous"),
    "limits.rendezvous passes while data is prepared": still_preparing,
    "no more agents come": lambda run: run.loop.passes("more agents"),
    "limits.evaluate passes": lambda run: run.loop.passes("evaluate"),
    "no more steps are reported": stall,
    "the grace of a halt passes": lambda run: run.loop.passes("halt"),
}


def fields(run: Conducted, kind: str) -> dict[str, Any]:
    return next(fields for found, fields in run.journal.events if found == kind)
