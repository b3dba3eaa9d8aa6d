"""The host as tables: in this state, after this message, these orders, these reports and that state.

No process, no socket and no time is involved. A cell reads `ending cleared/generation | to the zygote and to
tasks | to the conductor | deadlines`: `+grace` is set or moved, `-grace` is no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from oarlock.agent.protocol import messages
from oarlock.agent.protocol.gates import GATE_EVENTS, CarryOn, MeetAt, WhereAreYou
from oarlock.agent.protocol.wishes import (
    Clear,
    Fault,
    Finish,
    Halt,
    Made,
    Order,
    Over,
    Part,
    RunTasks,
    ShowStacks,
    Stop,
    ToGates,
    Wish,
)
from oarlock.agent.zygote.orders import MachineUnfit
from tests.support.hosted_tasks import HostedTasks, halts, wish_to_run

STATES = [
    "importing",
    "ready",
    "fetching",
    "forking",
    "running",
    "with an evaluator",
    "at gates",
    "halting",
    "scoring",
    "awaiting checkpoints to score",
    "showing stacks",
    "finishing",
    "stopping",
    "clearing",
    "sweeping",
    "awaiting memory",
    "cleared",
]


FOLDER = "1" * 16


def of_one_kind(host: HostedTasks, **more: Any) -> RunTasks:
    """The same tasks as before, of which only the wish for them has changed."""
    return wish_to_run(1, dict(host.host.spec.sizes), **more)


def start_evaluator_again(host: HostedTasks) -> None:
    if "evaluator-0" in host.lines:
        host.exits(11)
        host.obey(of_one_kind(host, launches={"evaluator-0": 2}))


def await_folder(host: HostedTasks, generation: int) -> None:
    host.writes("worker-1", kind="await", folder=FOLDER)
    host.obey(Made(generation, frozenset({FOLDER})))


def await_made_folder(host: HostedTasks) -> None:
    host.obey(Made(1, frozenset({FOLDER})))
    host.writes("worker-1", kind="await", folder=FOLDER)


def die_with_gpus(host: HostedTasks, closed: bool = False) -> None:
    """The line of a task closes before its process is gone."""
    host.writes("worker-1", kind="gpus", gpus=[0, 1])
    if closed:
        host.writes("worker-1", kind="gpus", gpus=[])
    host.dying.add("worker-1")
    if "worker-1" in host.lines:
        host.lines["worker-1"].on_end()


def look(host: HostedTasks, writes: bool = False, computes: bool = False) -> None:
    host.loop.passes("signs of life")  # what was written before does not count
    host.events.clear()
    if writes:
        host.writes("worker-0", kind="ask", purpose="nothing")
        host.statuses = 0
    host.is_computing = computes
    host.loop.passes("signs of life")


def look_at_gpus(host: HostedTasks) -> None:
    host.figures = {"worker-0": {"busy": 50}}
    host.host.events.look_at_gpus()


def pass_twice(host: HostedTasks) -> None:
    for _ in range(2):
        host.loop.passes("grace of all but evaluators")


def come_last(host: HostedTasks) -> None:
    assert host.supply is not None
    host.supply.is_complete = True
    host.loop.passes("last checkpoints")


def free(host: HostedTasks, held: str = "") -> None:
    host.held = held
    host.loop.clock += 0 if not held else 60
    host.loop.passes("memory of dead tasks on GPUs")


def linger(host: HostedTasks) -> None:
    host.writes("worker-1", kind="error", type="E")
    host.loop.passes("last words of worker-1")


MESSAGES: dict[str, Callable[[HostedTasks], Any]] = {
    "run 1": lambda host: host.obey(wish_to_run(1)),
    "run 1, worker-1 again": lambda host: host.obey(wish_to_run(1, launches={"worker-1": 2})),
    "run 2": lambda host: host.obey(wish_to_run(2)),
    "run 2 elsewhere": lambda host: host.obey(wish_to_run(2, places={"machine-1": ["worker-0", "worker-1"]})),
    "run 1, the leader task is done": lambda host: host.obey(of_one_kind(host, is_done=True)),
    "run 1, the evaluator again": start_evaluator_again,
    "halt 1": lambda host: host.obey(Halt(1)),
    "clear 0": lambda host: host.obey(Clear(0)),
    "clear 1": lambda host: host.obey(Clear(1)),
    "clear 1 after stacks": lambda host: host.obey(Clear(1, stacks=True)),
    "clear 2": lambda host: host.obey(Clear(2)),
    "finish 1": lambda host: host.obey(Finish(1)),
    "stop 1": lambda host: host.obey(Stop(1)),
    "stop 1 now": lambda host: host.obey(Stop(1, now=True)),
    "over 1": lambda host: host.obey(Over(1, 0)),
    "part": lambda host: host.obey(Part(1)),
    "stacks": lambda host: host.obey(ShowStacks(1)),
    "where": lambda host: host.obey(ToGates(1, WhereAreYou(1))),
    "meet to halt": lambda host: host.obey(ToGates(1, MeetAt(1, "halt", 7))),
    "carry on": lambda host: host.obey(ToGates(1, CarryOn(1))),
    "carry on, of generation 2": lambda host: host.obey(ToGates(2, CarryOn(1))),
    "made": lambda host: host.obey(Made(1, frozenset({FOLDER}))),
    "made, which a task awaits": lambda host: await_folder(host, 1),
    "made, of generation 2": lambda host: await_folder(host, 2),
    "kill": lambda host: host.obey(Fault(1, "kill", "worker-1")),
    "kill, of generation 2": lambda host: host.obey(Fault(2, "kill", "worker-1")),
    "pause": lambda host: host.obey(Fault(1, "pause", "worker-1", 5.0)),
    "continue": lambda host: host.obey(Fault(1, "continue", "worker-1")),
    "the checkpoints have come": lambda host: host.fetched(),
    "the checkpoints cannot be fetched": lambda host: host.fetched("nobody answered"),
    "the zygote is ready": lambda host: host.ready(),
    "the zygote has forked": lambda host: host.launched(),
    "the zygote cannot fork": lambda host: host.not_launched(),
    "the zygote refuses": lambda host: host.host.on_reply(MachineUnfit("no namespace")),
    "the zygote is lost": lambda host: host.host.on_zygote_lost(),
    "the zygote has swept": lambda host: host.swept(),
    "one task fails": lambda host: host.exits(11),
    "both tasks end": lambda host: host.exits(10, 11, status=0),
    "both tasks halt": halts,
    "a task reports a step": lambda host: host.writes("worker-1", kind="report", step=3),
    "a task reports an error": lambda host: host.writes("worker-1", kind="error", type="E"),
    "a task notes something": lambda host: host.writes("worker-1", kind="note", text="hello"),
    "a task announces its gate": lambda host: host.writes("worker-1", kind="gate", loop=2),
    "a task answers where it is": lambda host: host.writes("worker-1", kind="at", loop=1, meeting=1, step=4),
    "a task asks for a save": lambda host: host.writes("worker-1", kind="ask", purpose="save"),
    "a task warns": lambda host: host.writes("worker-1", kind="warning", text="slow"),
    "a task has saved": lambda host: host.writes("worker-1", kind="checkpoint", step=3),
    "a task has imported more": lambda host: host.writes("worker-1", kind="imported", modules=["a", "b"]),
    "a task has opened GPUs": lambda host: host.writes("worker-1", kind="gpus", gpus=[0, 1]),
    "a task that has opened GPUs dies": die_with_gpus,
    "a task that has closed its GPUs dies": lambda host: die_with_gpus(host, closed=True),
    "the leader task makes a folder": lambda host: host.writes("worker-0", kind="made", folder=FOLDER),
    "another task makes a folder": lambda host: host.writes("worker-1", kind="made", folder=FOLDER),
    "a task awaits a folder": lambda host: host.writes("worker-1", kind="await", folder=FOLDER),
    "a task awaits a folder that is made": await_made_folder,
    "the evaluator follows": lambda host: host.writes("evaluator-0", kind="follow"),
    "a worker follows": lambda host: host.writes("worker-0", kind="follow"),
    "the evaluator scores": lambda host: host.writes("evaluator-0", kind="report", step=3, generation=1),
    "a task writes nonsense": lambda host: host.writes("worker-1", kind="nonsense"),
    "this machine has to leave": lambda host: host.host.leave(),
    "the leading agent is silent": lambda host: host.host.fence(),
    "a task has written, at the next look": lambda host: look(host, writes=True),
    "a task has computed, at the next look": lambda host: look(host, computes=True),
    "no task has, at the next look": look,
    "GPUs have figures, at the next look": look_at_gpus,
    "the imports take too long": lambda host: host.loop.passes("zygote"),
    "the grace passes": lambda host: host.loop.passes("grace"),
    "the time for stacks passes": lambda host: host.loop.passes("stacks"),
    "the grace of all but evaluators passes": lambda host: host.loop.passes("grace of all but evaluators"),
    "it passes twice": pass_twice,
    "the last checkpoints have come": come_last,
    "the last checkpoints have not come": lambda host: host.loop.passes("last checkpoints"),
    "the memory of GPUs is free": free,
    "the memory of GPUs is not free": lambda host: free(host, held="1 GiB"),
    "a task reports an error, and does not end": linger,
    "the time for last words passes": lambda host: host.loop.passes("last words of worker-1"),
}

# Where a state is not named, nothing is said, nothing is reported, no deadline changes and the state stays.
TABLE: dict[str, dict[str, str]] = {
    "run 1": {
        "ready": "none 0/1 | launch:worker-0 launch:worker-1 | status*1",
        "fetching": "none 0/1 | launch:worker-0 launch:worker-1 | status*1",
    },
    "run 1, worker-1 again": {
        "ready": "none 0/1 | launch:worker-0 launch:worker-1 | status*1",
        "fetching": "none 0/1 | launch:worker-0 launch:worker-1 | status*1",
        "sweeping": "clear 0/1 | worker-1<closed launch:worker-1 |",
        "awaiting memory": "clear 0/1 | worker-1<closed launch:worker-1 |",
        "cleared": "clear 1/1 | launch:worker-1 |",
    },
    "run 2": {
        "ready": "none 0/2 | launch:worker-0 launch:worker-1 | status*1",
        "fetching": "none 0/2 | launch:worker-0 launch:worker-1 | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "with an evaluator": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "scoring": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators",
        "awaiting checkpoints to score": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators,"
        " -last checkpoints",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |  | -stacks",
        "finishing": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "stopping": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "none 1/2 | launch:worker-0 launch:worker-1 | status*1",
    },
    "run 2 elsewhere": {
        "ready": "none 2/2 |  | status*1",
        "fetching": "none 2/2 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "with an evaluator": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "scoring": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators",
        "awaiting checkpoints to score": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators,"
        " -last checkpoints",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |  | -stacks",
        "finishing": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "stopping": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "none 2/2 |  | status*1",
    },
    "run 1, the leader task is done": {
        "ready": "none 1/1 |  | status*1",
        "fetching": "none 1/1 |  | status*1",
        "forking": "none 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
        "running": "none 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
        "with an evaluator": "none 0/1 | evaluator-0<stop worker-0<stop |  | +grace of all but evaluators",
        "at gates": "none 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
        "halting": "none 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
        "scoring": "none 0/1 | evaluator-0<stop |",
        "awaiting checkpoints to score": "none 0/1 |  |  | +last checkpoints",
        "showing stacks": "stacks 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
        "finishing": "finish 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
        "stopping": "stop 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
        "clearing": "clear 0/1 | worker-0<stop worker-1<stop |  | +grace of all but evaluators",
    },
    "run 1, the evaluator again": {
        "with an evaluator": "none 0/1 | evaluator-0<closed launch:evaluator-0 | task:evaluator-0:ended"
        " status*1",
        "scoring": "none 0/1 | evaluator-0<closed launch:evaluator-0 | task:evaluator-0:ended status*1",
        "awaiting checkpoints to score": "none 0/1 | evaluator-0<closed launch:evaluator-0 |"
        " task:evaluator-0:ended status*1",
    },
    "halt 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
    },
    "clear 0": {
        "importing": "clear 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
    },
    "clear 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "with an evaluator": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "scoring": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators",
        "awaiting checkpoints to score": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators,"
        " -last checkpoints",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |  | -stacks",
        "finishing": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "stopping": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "clear 1/1 |  | status*1",
    },
    "clear 1 after stacks": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
        "forking": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |  | +stacks",
        "running": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |  | +stacks",
        "with an evaluator": "stacks 0/1 | stacks:worker-0 stacks:evaluator-0 |  | +stacks",
        "at gates": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |  | +stacks",
        "halting": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |  | +stacks",
        "scoring": "stacks 0/1 | stacks:worker-0 stacks:evaluator-0 |  | +stacks",
        "awaiting checkpoints to score": "stacks 0/1 | stacks:worker-0 stacks:evaluator-0 |  | +stacks",
    },
    "clear 2": {
        "importing": "clear 2/2 |  | status*1",
        "ready": "clear 2/2 |  | status*1",
        "fetching": "clear 2/2 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "with an evaluator": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "scoring": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators",
        "awaiting checkpoints to score": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators,"
        " -last checkpoints",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |  | -stacks",
        "finishing": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "stopping": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "clear 2/2 |  | status*1",
    },
    "finish 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
        "forking": "finish 0/1 | worker-0<stop worker-1<stop |  | +grace",
        "running": "finish 0/1 | worker-0<stop worker-1<stop |  | +grace",
        "with an evaluator": "finish 0/1 | worker-0<stop evaluator-0<stop |  | +grace",
        "at gates": "finish 0/1 | worker-0<stop worker-1<stop |  | +grace",
        "halting": "finish 0/1 | worker-0<stop worker-1<stop |  | +grace",
        "scoring": "finish 0/1 | worker-0<stop evaluator-0<stop |  | +grace",
        "awaiting checkpoints to score": "finish 0/1 | worker-0<stop evaluator-0<stop |  | +grace",
        "showing stacks": "finish 0/1 | worker-0<stop worker-1<stop |  | +grace",
    },
    "stop 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
        "forking": "stop 0/1 | worker-0<stop worker-1<stop |  | +grace",
        "running": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "with an evaluator": "stop 0/1 | worker-0<stop evaluator-0<stop SIGTERM:10,11 |  | +grace",
        "at gates": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "halting": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "scoring": "stop 0/1 | worker-0<stop evaluator-0<stop SIGTERM:10,11 |  | +grace",
        "awaiting checkpoints to score": "stop 0/1 | worker-0<stop evaluator-0<stop SIGTERM:10,11 |  |"
        " +grace",
        "showing stacks": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "finishing": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
    },
    "stop 1 now": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "with an evaluator": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "scoring": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators",
        "awaiting checkpoints to score": "clear 0/1 | SIGKILL:10,11 |  | -grace of all but evaluators,"
        " -last checkpoints",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |  | -stacks",
        "finishing": "clear 0/1 | SIGKILL:10,11 |  | -grace",
        "stopping": "clear 0/1 | SIGKILL:10,11 |  | -grace",
    },
    "over 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
    },
    "part": {
        "importing": "stop 0/0 |  | status*1",
        "fetching": "clear 1/1 |  | status*1",
        "forking": "stop 0/1 | worker-0<stop worker-1<stop |  | +grace",
        "running": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "with an evaluator": "stop 0/1 | worker-0<stop evaluator-0<stop SIGTERM:10,11 |  | +grace",
        "at gates": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "halting": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "scoring": "stop 0/1 | worker-0<stop evaluator-0<stop SIGTERM:10,11 |  | +grace",
        "awaiting checkpoints to score": "stop 0/1 | worker-0<stop evaluator-0<stop SIGTERM:10,11 |  |"
        " +grace",
        "showing stacks": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
        "finishing": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |  | +grace",
    },
    "stacks": {
        "forking": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
        "running": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
        "with an evaluator": "none 0/1 | stacks:worker-0 stacks:evaluator-0 |",
        "at gates": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
        "halting": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
        "scoring": "none 0/1 | stacks:worker-0 stacks:evaluator-0 |",
        "awaiting checkpoints to score": "none 0/1 | stacks:worker-0 stacks:evaluator-0 |",
        "showing stacks": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |",
        "finishing": "finish 0/1 | stacks:worker-0 stacks:worker-1 |",
        "stopping": "stop 0/1 | stacks:worker-0 stacks:worker-1 |",
        "clearing": "clear 0/1 | stacks:worker-0 stacks:worker-1 |",
    },
    "where": {
        "at gates": "none 0/1 | worker-0<where 1 worker-1<where 1 |",
        "halting": "none 0/1 | worker-0<where 1 worker-1<where 1 |",
    },
    "meet to halt": {
        "at gates": "none 0/1 | worker-0<meet 1 halt 7 worker-1<meet 1 halt 7 |",
        "halting": "none 0/1 | worker-0<meet 1 halt 7 worker-1<meet 1 halt 7 |",
    },
    "carry on": {
        "at gates": "none 0/1 | worker-0<carry-on 1 worker-1<carry-on 1 |",
        "halting": "none 0/1 | worker-0<carry-on 1 worker-1<carry-on 1 |",
    },
    "carry on, of generation 2": {},
    "made": {},
    "made, which a task awaits": {
        "forking": "none 0/1 | worker-1<made:1111111111111111 |",
        "running": "none 0/1 | worker-1<made:1111111111111111 |",
        "at gates": "none 0/1 | worker-1<made:1111111111111111 |",
        "halting": "none 0/1 | worker-1<made:1111111111111111 |",
        "showing stacks": "stacks 0/1 | worker-1<made:1111111111111111 |",
        "finishing": "finish 0/1 | worker-1<made:1111111111111111 |",
        "stopping": "stop 0/1 | worker-1<made:1111111111111111 |",
        "clearing": "clear 0/1 | worker-1<made:1111111111111111 |",
    },
    "made, of generation 2": {},
    "kill": {
        "running": "none 0/1 | SIGKILL:11:theirs |",
        "at gates": "none 0/1 | SIGKILL:11:theirs |",
        "halting": "none 0/1 | SIGKILL:11:theirs |",
        "showing stacks": "stacks 0/1 | SIGKILL:11:theirs |",
        "finishing": "finish 0/1 | SIGKILL:11:theirs |",
        "stopping": "stop 0/1 | SIGKILL:11:theirs |",
        "clearing": "clear 0/1 | SIGKILL:11:theirs |",
    },
    "kill, of generation 2": {},
    "pause": {
        "forking": "none 0/1 |  |  | +pause of worker-1",
        "running": "none 0/1 | SIGSTOP:11:theirs |  | +pause of worker-1",
        "at gates": "none 0/1 | SIGSTOP:11:theirs |  | +pause of worker-1",
        "halting": "none 0/1 | SIGSTOP:11:theirs |  | +pause of worker-1",
        "showing stacks": "stacks 0/1 | SIGSTOP:11:theirs |  | +pause of worker-1",
        "finishing": "finish 0/1 | SIGSTOP:11:theirs |  | +pause of worker-1",
        "stopping": "stop 0/1 | SIGSTOP:11:theirs |  | +pause of worker-1",
        "clearing": "clear 0/1 | SIGSTOP:11:theirs |  | +pause of worker-1",
    },
    "continue": {
        "forking": "none 0/1 |  | note",
        "running": "none 0/1 | SIGCONT:11:theirs | note",
        "at gates": "none 0/1 | SIGCONT:11:theirs | note",
        "halting": "none 0/1 | SIGCONT:11:theirs | note",
        "showing stacks": "stacks 0/1 | SIGCONT:11:theirs | note",
        "finishing": "finish 0/1 | SIGCONT:11:theirs | note",
        "stopping": "stop 0/1 | SIGCONT:11:theirs | note",
        "clearing": "clear 0/1 | SIGCONT:11:theirs | note",
    },
    "the checkpoints have come": {
        "fetching": "none 0/1 | launch:worker-0 launch:worker-1 | status*1",
    },
    "the checkpoints cannot be fetched": {
        "fetching": "clear 0/0 |  | never_ready",
    },
    "the zygote is ready": {
        "importing": "clear 0/0 |  | ready status*2 | -zygote",
        "ready": "clear 0/0 |  | ready status*2",
        "fetching": "clear 0/0 |  | ready status*1",
        "forking": "none 0/1 |  | ready status*1",
        "running": "none 0/1 |  | ready status*1",
        "with an evaluator": "none 0/1 |  | ready status*1",
        "at gates": "none 0/1 |  | ready status*1",
        "halting": "none 0/1 |  | ready status*1",
        "scoring": "none 0/1 | evaluator-0<stop | ready status*1",
        "awaiting checkpoints to score": "none 0/1 |  | ready status*1 | +last checkpoints",
        "showing stacks": "stacks 0/1 |  | ready status*1",
        "finishing": "finish 0/1 |  | ready status*1",
        "stopping": "stop 0/1 |  | ready status*1",
        "clearing": "clear 0/1 | SIGKILL:10,11 | ready status*1",
        "sweeping": "clear 0/1 |  | ready status*1",
        "awaiting memory": "clear 0/1 |  | ready status*1",
        "cleared": "clear 1/1 |  | ready status*2",
    },
    "the zygote has forked": {
        "forking": "none 0/1 |  | task:worker-0:started task:worker-1:started",
    },
    "the zygote cannot fork": {
        "forking": "none 0/1 |  | note | +silence about forks, +start of worker-0",
        "running": "none 0/1 |  | note | +silence about forks, +start of worker-0",
        "with an evaluator": "none 0/1 |  | note | +silence about forks, +start of worker-0",
        "at gates": "none 0/1 |  | note | +silence about forks, +start of worker-0",
        "halting": "none 0/1 |  | note | +silence about forks, +start of worker-0",
        "scoring": "none 0/1 |  | note | +silence about forks, +start of worker-0",
        "awaiting checkpoints to score": "none 0/1 |  | note | +silence about forks, +start of worker-0",
        "showing stacks": "stacks 0/1 |  | note | +silence about forks, +start of worker-0",
        "finishing": "finish 0/1 |  | note | +silence about forks, +start of worker-0",
        "stopping": "stop 0/1 |  | note | +silence about forks, +start of worker-0",
        "clearing": "clear 0/1 |  | note | +silence about forks, +start of worker-0",
    },
    "the zygote refuses": {
        "importing": "none 0/0 |  | never_ready",
        "ready": "clear 0/0 |  | never_ready",
        "fetching": "clear 0/0 |  | never_ready",
        "forking": "none 0/1 |  | never_ready",
        "running": "none 0/1 |  | never_ready",
        "with an evaluator": "none 0/1 |  | never_ready",
        "at gates": "none 0/1 |  | never_ready",
        "halting": "none 0/1 |  | never_ready",
        "scoring": "none 0/1 |  | never_ready",
        "awaiting checkpoints to score": "none 0/1 |  | never_ready",
        "showing stacks": "stacks 0/1 |  | never_ready",
        "finishing": "finish 0/1 |  | never_ready",
        "stopping": "stop 0/1 |  | never_ready",
        "clearing": "clear 0/1 |  | never_ready",
        "sweeping": "clear 0/1 |  | never_ready",
        "awaiting memory": "clear 0/1 |  | never_ready",
        "cleared": "clear 1/1 |  | never_ready",
    },
    "the zygote is lost": {
        "importing": "none 0/0 | start:2 | note status*1 | +signs of life, +zygote",
        "ready": "clear 0/0 | start:2 | note status*2 | +signs of life, +zygote",
        "fetching": "clear 0/0 | start:2 | note status*2 | +signs of life, +zygote",
        "forking": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1 | +signs"
        " of life, +zygote",
        "running": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1 | +signs"
        " of life, +zygote",
        "with an evaluator": "none 0/1 | start:2 | note task:worker-0:ended task:evaluator-0:ended"
        " status*1 | +signs of life, +zygote",
        "at gates": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1 | +signs"
        " of life, +zygote",
        "halting": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1 | +signs"
        " of life, +zygote",
        "scoring": "none 0/1 | start:2 | note task:worker-0:ended task:evaluator-0:ended status*1 |"
        " +signs of life, +zygote",
        "awaiting checkpoints to score": "none 0/1 | start:2 | note task:worker-0:ended"
        " task:evaluator-0:ended status*1 | +signs of life, +zygote",
        "showing stacks": "stacks 1/1 | start:2 worker-0<closed worker-1<closed | note"
        " task:worker-0:ended task:worker-1:ended status*2 | +signs of life, +zygote, -stacks",
        "finishing": "finish 1/1 | start:2 worker-0<closed worker-1<closed | note task:worker-0:ended"
        " task:worker-1:ended status*2 | +signs of life, +zygote, -grace",
        "stopping": "stop 1/1 | start:2 worker-0<closed worker-1<closed | note task:worker-0:ended"
        " task:worker-1:ended status*2 | +signs of life, +zygote, -grace",
        "clearing": "clear 1/1 | start:2 worker-0<closed worker-1<closed | note task:worker-0:ended"
        " task:worker-1:ended status*2 | +signs of life, +zygote",
        "sweeping": "clear 1/1 | start:2 worker-0<closed worker-1<closed | note status*2 | +signs of"
        " life, +zygote",
        "awaiting memory": "clear 0/1 | start:2 | note status*1 | +memory of dead tasks on GPUs, +signs"
        " of life, +zygote",
        "cleared": "clear 1/1 | start:2 | note status*2 | +signs of life, +zygote",
    },
    "the zygote has swept": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
        "fetching": "clear 0/0 |  | status*1",
        "forking": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "running": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "with an evaluator": "none 1/1 | worker-0<closed evaluator-0<closed | status*1",
        "at gates": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "halting": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "scoring": "none 1/1 | worker-0<closed evaluator-0<closed | status*1",
        "awaiting checkpoints to score": "none 1/1 | worker-0<closed evaluator-0<closed | status*1",
        "showing stacks": "stacks 1/1 | worker-0<closed worker-1<closed | status*1",
        "finishing": "finish 1/1 | worker-0<closed worker-1<closed | status*1",
        "stopping": "stop 1/1 | worker-0<closed worker-1<closed | status*1",
        "clearing": "clear 1/1 | worker-0<closed worker-1<closed | status*1",
        "sweeping": "clear 1/1 | worker-0<closed worker-1<closed | status*1",
        "awaiting memory": "clear 0/1 |  |  | +memory of dead tasks on GPUs",
        "cleared": "clear 1/1 |  | status*1",
    },
    "one task fails": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*2",
        "fetching": "clear 0/0 |  | status*2",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | task:worker-1:ended status*1",
        "with an evaluator": "none 0/1 |  | task:evaluator-0:ended status*1",
        "at gates": "none 0/1 |  | task:worker-1:ended status*1",
        "halting": "none 0/1 |  | task:worker-1:ended status*1",
        "scoring": "none 0/1 |  | task:evaluator-0:ended status*1",
        "awaiting checkpoints to score": "none 0/1 |  | task:evaluator-0:ended status*1",
        "showing stacks": "stacks 0/1 |  | task:worker-1:ended status*1",
        "finishing": "finish 0/1 |  | task:worker-1:ended status*1",
        "stopping": "stop 0/1 |  | task:worker-1:ended status*1",
        "clearing": "clear 0/1 |  | task:worker-1:ended status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "awaiting memory": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*2",
    },
    "both tasks end": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*2",
        "fetching": "clear 0/0 |  | status*2",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "with an evaluator": "none 0/1 |  | task:worker-0:ended task:evaluator-0:ended status*1",
        "at gates": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "halting": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "scoring": "none 0/1 |  | task:worker-0:ended task:evaluator-0:ended status*1",
        "awaiting checkpoints to score": "none 0/1 |  | task:worker-0:ended task:evaluator-0:ended status*1",
        "showing stacks": "stacks 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1 | -stacks",
        "finishing": "finish 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1 | -grace",
        "stopping": "stop 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1 | -grace",
        "clearing": "clear 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "awaiting memory": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*2",
    },
    "both tasks halt": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*2",
        "fetching": "clear 0/0 |  | status*2",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "with an evaluator": "none 0/1 |  | task:worker-0:ended task:evaluator-0:ended status*1",
        "at gates": "none 0/1 | worker-0<meet 1 halt 7 worker-1<meet 1 halt 7 | task:worker-0:ended"
        " task:worker-1:ended status*1",
        "halting": "none 0/1 | worker-0<meet 1 halt 7 worker-1<meet 1 halt 7 | task:worker-0:ended"
        " task:worker-1:ended status*1",
        "scoring": "none 0/1 |  | task:worker-0:ended task:evaluator-0:ended status*1",
        "awaiting checkpoints to score": "none 0/1 |  | task:worker-0:ended task:evaluator-0:ended status*1",
        "showing stacks": "stacks 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1 | -stacks",
        "finishing": "finish 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1 | -grace",
        "stopping": "stop 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1 | -grace",
        "clearing": "clear 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "awaiting memory": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*2",
    },
    "a task reports a step": {
        "forking": "none 0/1 |  | report:worker-1",
        "running": "none 0/1 |  | report:worker-1",
        "at gates": "none 0/1 |  | report:worker-1",
        "halting": "none 0/1 |  | report:worker-1",
        "showing stacks": "stacks 0/1 |  | report:worker-1",
        "finishing": "finish 0/1 |  | report:worker-1",
        "stopping": "stop 0/1 |  | report:worker-1",
        "clearing": "clear 0/1 |  | report:worker-1",
        "sweeping": "clear 0/1 |  | report:worker-1",
        "awaiting memory": "clear 0/1 |  | report:worker-1",
        "cleared": "clear 1/1 |  | report:worker-1",
    },
    "a task reports an error": {
        "forking": "none 0/1 |  | error:worker-1 | +last words of worker-1",
        "running": "none 0/1 |  | error:worker-1 | +last words of worker-1",
        "at gates": "none 0/1 |  | error:worker-1 | +last words of worker-1",
        "halting": "none 0/1 |  | error:worker-1 | +last words of worker-1",
        "showing stacks": "stacks 0/1 |  | error:worker-1",
        "finishing": "finish 0/1 |  | error:worker-1",
        "stopping": "stop 0/1 |  | error:worker-1",
        "clearing": "clear 0/1 |  | error:worker-1",
        "sweeping": "clear 0/1 |  | error:worker-1",
        "awaiting memory": "clear 0/1 |  | error:worker-1",
        "cleared": "clear 1/1 |  | error:worker-1",
    },
    "a task notes something": {
        "forking": "none 0/1 |  | note",
        "running": "none 0/1 |  | note",
        "at gates": "none 0/1 |  | note",
        "halting": "none 0/1 |  | note",
        "showing stacks": "stacks 0/1 |  | note",
        "finishing": "finish 0/1 |  | note",
        "stopping": "stop 0/1 |  | note",
        "clearing": "clear 0/1 |  | note",
        "sweeping": "clear 0/1 |  | note",
        "awaiting memory": "clear 0/1 |  | note",
        "cleared": "clear 1/1 |  | note",
    },
    "a task announces its gate": {
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | status*1",
        "at gates": "none 0/1 |  | status*1",
        "halting": "none 0/1 |  | status*1",
        "showing stacks": "stacks 0/1 |  | status*1",
        "finishing": "finish 0/1 |  | status*1",
        "stopping": "stop 0/1 |  | status*1",
        "clearing": "clear 0/1 |  | status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "awaiting memory": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*1",
    },
    "a task answers where it is": {
        "at gates": "none 0/1 |  | status*1",
        "halting": "none 0/1 |  | status*1",
    },
    "a task asks for a save": {
        "at gates": "none 0/1 |  | status*1",
        "halting": "none 0/1 |  | status*1",
    },
    "a task warns": {
        "forking": "none 0/1 |  | warning",
        "running": "none 0/1 |  | warning",
        "at gates": "none 0/1 |  | warning",
        "halting": "none 0/1 |  | warning",
        "showing stacks": "stacks 0/1 |  | warning",
        "finishing": "finish 0/1 |  | warning",
        "stopping": "stop 0/1 |  | warning",
        "clearing": "clear 0/1 |  | warning",
        "sweeping": "clear 0/1 |  | warning",
        "awaiting memory": "clear 0/1 |  | warning",
        "cleared": "clear 1/1 |  | warning",
    },
    "a task has saved": {
        "forking": "none 0/1 |  | checkpoint",
        "running": "none 0/1 |  | checkpoint",
        "at gates": "none 0/1 |  | checkpoint",
        "halting": "none 0/1 |  | checkpoint",
        "showing stacks": "stacks 0/1 |  | checkpoint",
        "finishing": "finish 0/1 |  | checkpoint",
        "stopping": "stop 0/1 |  | checkpoint",
        "clearing": "clear 0/1 |  | checkpoint",
        "sweeping": "clear 0/1 |  | checkpoint",
        "awaiting memory": "clear 0/1 |  | checkpoint",
        "cleared": "clear 1/1 |  | checkpoint",
    },
    "a task has imported more": {
        "forking": "none 0/1 | import:a,b |",
        "running": "none 0/1 | import:a,b |",
        "at gates": "none 0/1 | import:a,b |",
        "halting": "none 0/1 | import:a,b |",
        "showing stacks": "stacks 0/1 | import:a,b |",
        "finishing": "finish 0/1 | import:a,b |",
        "stopping": "stop 0/1 | import:a,b |",
        "clearing": "clear 0/1 | import:a,b |",
        "sweeping": "clear 0/1 | import:a,b |",
        "awaiting memory": "clear 0/1 | import:a,b |",
        "cleared": "clear 1/1 | import:a,b |",
    },
    "a task has opened GPUs": {
        "forking": "none 0/1 | stand by:worker-1:0,1 |",
        "running": "none 0/1 | stand by:worker-1:0,1 |",
        "at gates": "none 0/1 | stand by:worker-1:0,1 |",
    },
    "a task that has opened GPUs dies": {
        "forking": "none 0/1 | stand by:worker-1:0,1 open:worker-1 |",
        "running": "none 0/1 | stand by:worker-1:0,1 open:worker-1 |",
        "at gates": "none 0/1 | stand by:worker-1:0,1 open:worker-1 |",
        "showing stacks": "stacks 0/1 | open:worker-1 |",
        "clearing": "clear 0/1 | open:worker-1 |",
        "sweeping": "clear 0/1 | open:worker-1 |",
        "awaiting memory": "clear 0/1 | open:worker-1 |",
        "cleared": "clear 1/1 | open:worker-1 |",
    },
    "a task that has closed its GPUs dies": {
        "forking": "none 0/1 | stand by:worker-1:0,1 stand by:worker-1: |",
        "running": "none 0/1 | stand by:worker-1:0,1 stand by:worker-1: |",
        "at gates": "none 0/1 | stand by:worker-1:0,1 stand by:worker-1: |",
    },
    "the leader task makes a folder": {
        "forking": "none 0/1 |  | status*1 made:1",
        "running": "none 0/1 |  | status*1 made:1",
        "with an evaluator": "none 0/1 |  | status*1 made:1",
        "at gates": "none 0/1 |  | status*1 made:1",
        "halting": "none 0/1 |  | status*1 made:1",
        "scoring": "none 0/1 |  | status*1 made:1",
        "awaiting checkpoints to score": "none 0/1 |  | status*1 made:1",
        "showing stacks": "stacks 0/1 |  | status*1 made:1",
        "finishing": "finish 0/1 |  | status*1 made:1",
        "stopping": "stop 0/1 |  | status*1 made:1",
        "clearing": "clear 0/1 |  | status*1 made:1",
        "sweeping": "clear 0/1 |  | status*1 made:1",
        "awaiting memory": "clear 0/1 |  | status*1 made:1",
        "cleared": "clear 1/1 |  | status*1 made:1",
    },
    "another task makes a folder": {},
    "a task awaits a folder": {},
    "a task awaits a folder that is made": {
        "forking": "none 0/1 | worker-1<made:1111111111111111 |",
        "running": "none 0/1 | worker-1<made:1111111111111111 |",
        "at gates": "none 0/1 | worker-1<made:1111111111111111 |",
        "halting": "none 0/1 | worker-1<made:1111111111111111 |",
        "showing stacks": "stacks 0/1 | worker-1<made:1111111111111111 |",
        "finishing": "finish 0/1 | worker-1<made:1111111111111111 |",
        "stopping": "stop 0/1 | worker-1<made:1111111111111111 |",
        "clearing": "clear 0/1 | worker-1<made:1111111111111111 |",
    },
    "the evaluator follows": {
        "with an evaluator": "none 0/1 |  | status*1 follows:evaluator-0",
        "scoring": "none 0/1 |  | status*1 follows:evaluator-0",
        "awaiting checkpoints to score": "none 0/1 |  | status*1 follows:evaluator-0",
    },
    "a worker follows": {
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | status*1",
        "with an evaluator": "none 0/1 |  | status*1",
        "at gates": "none 0/1 |  | status*1",
        "halting": "none 0/1 |  | status*1",
        "scoring": "none 0/1 |  | status*1",
        "awaiting checkpoints to score": "none 0/1 |  | status*1",
        "showing stacks": "stacks 0/1 |  | status*1",
        "finishing": "finish 0/1 |  | status*1",
        "stopping": "stop 0/1 |  | status*1",
        "clearing": "clear 0/1 |  | status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "awaiting memory": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*1",
    },
    "the evaluator scores": {
        "with an evaluator": "none 0/1 |  | status*1 scores:evaluator-0:1",
        "scoring": "none 0/1 |  | status*1 scores:evaluator-0:1",
        "awaiting checkpoints to score": "none 0/1 |  | status*1 scores:evaluator-0:1",
    },
    "a task writes nonsense": {
        "forking": "none 0/1 |  |  | +dropped messages",
        "running": "none 0/1 |  |  | +dropped messages",
        "at gates": "none 0/1 |  |  | +dropped messages",
        "halting": "none 0/1 |  |  | +dropped messages",
        "showing stacks": "stacks 0/1 |  |  | +dropped messages",
        "finishing": "finish 0/1 |  |  | +dropped messages",
        "stopping": "stop 0/1 |  |  | +dropped messages",
        "clearing": "clear 0/1 |  |  | +dropped messages",
        "sweeping": "clear 0/1 |  |  | +dropped messages",
        "awaiting memory": "clear 0/1 |  |  | +dropped messages",
        "cleared": "clear 1/1 |  |  | +dropped messages",
    },
    "this machine has to leave": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
        "fetching": "clear 0/0 |  | status*1",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | status*1",
        "with an evaluator": "none 0/1 |  | status*1",
        "at gates": "none 0/1 |  | status*1",
        "halting": "none 0/1 |  | status*1",
        "scoring": "none 0/1 |  | status*1",
        "awaiting checkpoints to score": "none 0/1 |  | status*1",
        "showing stacks": "stacks 0/1 |  | status*1",
        "finishing": "finish 0/1 |  | status*1",
        "stopping": "stop 0/1 |  | status*1",
        "clearing": "clear 0/1 |  | status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "awaiting memory": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*1",
    },
    "the leading agent is silent": {
        "importing": "clear 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
        "fetching": "clear 0/0 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11:theirs |",
        "with an evaluator": "clear 0/1 | SIGKILL:10,11:theirs |",
        "at gates": "clear 0/1 | SIGKILL:10,11:theirs |",
        "halting": "clear 0/1 | SIGKILL:10,11:theirs |",
        "scoring": "clear 0/1 | SIGKILL:10,11:theirs |  | -grace of all but evaluators",
        "awaiting checkpoints to score": "clear 0/1 | SIGKILL:10,11:theirs |  | -grace of all but"
        " evaluators, -last checkpoints",
        "showing stacks": "clear 0/1 | SIGKILL:10,11:theirs |  | -stacks",
        "finishing": "clear 0/1 | SIGKILL:10,11:theirs |  | -grace",
        "stopping": "clear 0/1 | SIGKILL:10,11:theirs |  | -grace",
        "clearing": "clear 0/1 | SIGKILL:10,11:theirs |",
        "cleared": "clear 1/1 |  | status*1",
    },
    "a task has written, at the next look": {
        "importing": "none 0/0 |  |  | +signs of life",
        "ready": "clear 0/0 |  |  | +signs of life",
        "fetching": "clear 0/0 |  |  | +signs of life",
        "forking": "none 0/1 |  | alive | +signs of life",
        "running": "none 0/1 |  | alive | +signs of life",
        "with an evaluator": "none 0/1 |  | alive | +signs of life",
        "at gates": "none 0/1 |  | alive | +signs of life",
        "halting": "none 0/1 |  | alive | +signs of life",
        "scoring": "none 0/1 |  | alive | +signs of life",
        "awaiting checkpoints to score": "none 0/1 |  | alive | +signs of life",
        "showing stacks": "stacks 0/1 |  | alive | +signs of life",
        "finishing": "finish 0/1 |  | alive | +signs of life",
        "stopping": "stop 0/1 |  | alive | +signs of life",
        "clearing": "clear 0/1 |  | alive | +signs of life",
        "sweeping": "clear 0/1 |  |  | +signs of life",
        "awaiting memory": "clear 0/1 |  |  | +signs of life",
        "cleared": "clear 1/1 |  |  | +signs of life",
    },
    "a task has computed, at the next look": {
        "importing": "none 0/0 |  |  | +signs of life",
        "ready": "clear 0/0 |  |  | +signs of life",
        "fetching": "clear 0/0 |  |  | +signs of life",
        "forking": "none 0/1 |  | alive | +signs of life",
        "running": "none 0/1 |  | alive | +signs of life",
        "with an evaluator": "none 0/1 |  | alive | +signs of life",
        "at gates": "none 0/1 |  | alive | +signs of life",
        "halting": "none 0/1 |  | alive | +signs of life",
        "scoring": "none 0/1 |  | alive | +signs of life",
        "awaiting checkpoints to score": "none 0/1 |  | alive | +signs of life",
        "showing stacks": "stacks 0/1 |  | alive | +signs of life",
        "finishing": "finish 0/1 |  | alive | +signs of life",
        "stopping": "stop 0/1 |  | alive | +signs of life",
        "clearing": "clear 0/1 |  | alive | +signs of life",
        "sweeping": "clear 0/1 |  |  | +signs of life",
        "awaiting memory": "clear 0/1 |  |  | +signs of life",
        "cleared": "clear 1/1 |  |  | +signs of life",
    },
    "no task has, at the next look": {
        "importing": "none 0/0 |  |  | +signs of life",
        "ready": "clear 0/0 |  |  | +signs of life",
        "fetching": "clear 0/0 |  |  | +signs of life",
        "forking": "none 0/1 |  |  | +signs of life",
        "running": "none 0/1 |  |  | +signs of life",
        "with an evaluator": "none 0/1 |  |  | +signs of life",
        "at gates": "none 0/1 |  |  | +signs of life",
        "halting": "none 0/1 |  |  | +signs of life",
        "scoring": "none 0/1 |  |  | +signs of life",
        "awaiting checkpoints to score": "none 0/1 |  |  | +signs of life",
        "showing stacks": "stacks 0/1 |  |  | +signs of life",
        "finishing": "finish 0/1 |  |  | +signs of life",
        "stopping": "stop 0/1 |  |  | +signs of life",
        "clearing": "clear 0/1 |  |  | +signs of life",
        "sweeping": "clear 0/1 |  |  | +signs of life",
        "awaiting memory": "clear 0/1 |  |  | +signs of life",
        "cleared": "clear 1/1 |  |  | +signs of life",
    },
    "GPUs have figures, at the next look": {
        "importing": "none 0/0 |  |  | +figures of GPUs",
        "ready": "clear 0/0 |  |  | +figures of GPUs",
        "fetching": "clear 0/0 |  |  | +figures of GPUs",
        "forking": "none 0/1 |  |  | +figures of GPUs",
        "running": "none 0/1 |  | gpu | +figures of GPUs",
        "with an evaluator": "none 0/1 |  | gpu | +figures of GPUs",
        "at gates": "none 0/1 |  | gpu | +figures of GPUs",
        "halting": "none 0/1 |  | gpu | +figures of GPUs",
        "scoring": "none 0/1 |  | gpu | +figures of GPUs",
        "awaiting checkpoints to score": "none 0/1 |  | gpu | +figures of GPUs",
        "showing stacks": "stacks 0/1 |  | gpu | +figures of GPUs",
        "finishing": "finish 0/1 |  | gpu | +figures of GPUs",
        "stopping": "stop 0/1 |  | gpu | +figures of GPUs",
        "clearing": "clear 0/1 |  | gpu | +figures of GPUs",
        "sweeping": "clear 0/1 |  |  | +figures of GPUs",
        "awaiting memory": "clear 0/1 |  |  | +figures of GPUs",
        "cleared": "clear 1/1 |  |  | +figures of GPUs",
    },
    "the imports take too long": {
        "importing": "none 0/0 |  | never_ready | -zygote",
    },
    "the grace passes": {
        "finishing": "stop 0/1 | SIGTERM:10,11 |  | +grace",
        "stopping": "stop 0/1 | SIGKILL:10,11 |  | -grace",
    },
    "the time for stacks passes": {
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |  | -stacks",
    },
    "the grace of all but evaluators passes": {
        "scoring": "none 0/1 | SIGTERM:10 |  | +grace of all but evaluators",
        "awaiting checkpoints to score": "none 0/1 | SIGTERM:10 |  | +grace of all but evaluators",
    },
    "it passes twice": {
        "scoring": "none 0/1 | SIGTERM:10 SIGKILL:10 |  | -grace of all but evaluators",
        "awaiting checkpoints to score": "none 0/1 | SIGTERM:10 SIGKILL:10 |  | -grace of all but evaluators",
    },
    "the last checkpoints have come": {
        "awaiting checkpoints to score": "none 0/1 | evaluator-0<stop |  | -last checkpoints",
    },
    "the last checkpoints have not come": {
        "awaiting checkpoints to score": "none 0/1 |  |  | +last checkpoints",
    },
    "the memory of GPUs is free": {
        "awaiting memory": "clear 1/1 | worker-0<closed worker-1<closed | status*1 | -memory of dead"
        " tasks on GPUs",
    },
    "the memory of GPUs is not free": {
        "awaiting memory": "clear 1/1 | worker-0<closed worker-1<closed | note status*1 | -memory of"
        " dead tasks on GPUs",
    },
    "a task reports an error, and does not end": {
        "forking": "none 0/1 |  | error:worker-1",
        "running": "none 0/1 | SIGKILL:11:theirs | error:worker-1",
        "at gates": "none 0/1 | SIGKILL:11:theirs | error:worker-1",
        "halting": "none 0/1 | SIGKILL:11:theirs | error:worker-1",
        "showing stacks": "stacks 0/1 |  | error:worker-1",
        "finishing": "finish 0/1 |  | error:worker-1",
        "stopping": "stop 0/1 |  | error:worker-1",
        "clearing": "clear 0/1 |  | error:worker-1",
        "sweeping": "clear 0/1 |  | error:worker-1",
        "awaiting memory": "clear 0/1 |  | error:worker-1",
        "cleared": "clear 1/1 |  | error:worker-1",
    },
    "the time for last words passes": {},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_in_a_state(message: str, state: str) -> None:
    host = HostedTasks.of(state)
    unchanged = host.summary().rstrip()
    MESSAGES[message](host)
    found = f"{host.summary()} | {host.deadlines()}" if host.deadlines() else host.summary().rstrip()
    assert found == TABLE[message].get(state, unchanged)


def test_every_wish_order_and_event_of_a_task_is_in_the_table() -> None:
    obeyed, written = set(), set()
    for message in MESSAGES.values():
        host = HostedTasks.of("running")
        host.obeyed.clear()
        message(host)
        obeyed |= host.obeyed
        written |= host.written
    assert obeyed == {*get_args(Wish), *get_args(Order)}
    known = {*messages._OF_TASKS, *messages.FOLDER_EVENTS, *GATE_EVENTS}
    assert written == {*known, messages.FOLLOW, messages.IMPORTED, messages.GPUS, "nonsense"}


def test_the_table_names_states_and_messages_that_exist() -> None:
    assert list(TABLE) == list(MESSAGES)
    assert {state for row in TABLE.values() for state in row} == set(STATES)
