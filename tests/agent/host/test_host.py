"""The host as tables: in this state, after this message, these orders, these reports and that state.

No process, no socket and no time is involved. A cell reads `ending cleared/generation | to the zygote and to
tasks | to the conductor`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oarlock.agent.gpus.gpu_trouble import Trouble
from oarlock.agent.host.ending import GPU_MEMORY, OTHERS, SUPPLY
from oarlock.agent.host.task_events import GPUS
from oarlock.agent.protocol.gates import CarryOn, MeetAt, WhereAreYou
from oarlock.agent.protocol.status import Status
from oarlock.agent.protocol.wishes import (
    Clear,
    Fault,
    Finish,
    Halt,
    Made,
    Over,
    Part,
    Run,
    ShowStacks,
    Stop,
    ToGates,
)
from oarlock.agent.zygote.orders import NotLaunched, Ready, Refused
from oarlock.run.cluster import form
from tests.support.hosted_tasks import PREEMPTED, SPEC, HostedTasks, Supply, wish_to_run

STATES = [
    "importing",
    "ready",
    "forking",
    "running",
    "at gates",
    "halting",
    "showing stacks",
    "finishing",
    "stopping",
    "clearing",
    "sweeping",
    "cleared",
]


def halts(host: HostedTasks) -> None:
    """Both trainers leave at the step that was agreed on."""
    host.obey(ToGates(1, MeetAt(1, "halt", 7)))
    host.exits(10, 11, status=PREEMPTED)


MESSAGES: dict[str, Callable[[HostedTasks], Any]] = {
    "run 1": lambda host: host.obey(wish_to_run(1)),
    "run 1, worker-1 again": lambda host: host.obey(wish_to_run(1, launches={"worker-1": 2})),
    "run 2": lambda host: host.obey(wish_to_run(2)),
    "run 2 elsewhere": lambda host: host.obey(wish_to_run(2, places={"machine-1": ["worker-0", "worker-1"]})),
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
    "kill": lambda host: host.obey(Fault(1, "kill", "worker-1")),
    "kill, of generation 2": lambda host: host.obey(Fault(2, "kill", "worker-1")),
    "pause": lambda host: host.obey(Fault(1, "pause", "worker-1", 5.0)),
    "continue": lambda host: host.obey(Fault(1, "continue", "worker-1")),
    "the zygote is ready": lambda host: host.ready(),
    "the zygote has forked": lambda host: host.launched(),
    "the zygote cannot fork": lambda host: host.not_launched(),
    "the zygote refuses": lambda host: host.host.on_reply(Refused("no namespace")),
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
    "a task writes nonsense": lambda host: host.writes("worker-1", kind="nonsense"),
    "this machine has to leave": lambda host: host.host.leave(),
    "the leading agent is silent": lambda host: host.host.fence(),
    "the imports take too long": lambda host: host.loop.passes("zygote"),
    "the grace passes": lambda host: host.loop.passes("grace"),
    "the time for stacks passes": lambda host: host.loop.passes("stacks"),
    "the time for last words passes": lambda host: host.loop.passes("last words of worker-1"),
}

# Where a state is not named, nothing is said, nothing is reported and the state stays.
TABLE: dict[str, dict[str, str]] = {
    "run 1": {
        "ready": "none 0/1 | launch:worker-0 launch:worker-1 | status*1",
    },
    "run 1, worker-1 again": {
        "ready": "none 0/1 | launch:worker-0 launch:worker-1 | status*1",
        "sweeping": "clear 0/1 | worker-1<closed launch:worker-1 |",
        "cleared": "clear 1/1 | launch:worker-1 |",
    },
    "run 2": {
        "ready": "none 0/2 | launch:worker-0 launch:worker-1 | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |",
        "finishing": "clear 0/1 | SIGKILL:10,11 |",
        "stopping": "clear 0/1 | SIGKILL:10,11 |",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "none 1/2 | launch:worker-0 launch:worker-1 | status*1",
    },
    "run 2 elsewhere": {
        "ready": "none 2/2 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |",
        "finishing": "clear 0/1 | SIGKILL:10,11 |",
        "stopping": "clear 0/1 | SIGKILL:10,11 |",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "none 2/2 |  | status*1",
    },
    "halt 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
    },
    "clear 0": {
        "importing": "clear 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
    },
    "clear 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |",
        "finishing": "clear 0/1 | SIGKILL:10,11 |",
        "stopping": "clear 0/1 | SIGKILL:10,11 |",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "clear 1/1 |  | status*1",
    },
    "clear 1 after stacks": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "forking": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |",
        "running": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |",
        "at gates": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |",
        "halting": "stacks 0/1 | stacks:worker-0 stacks:worker-1 |",
    },
    "clear 2": {
        "importing": "clear 2/2 |  | status*1",
        "ready": "clear 2/2 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |",
        "finishing": "clear 0/1 | SIGKILL:10,11 |",
        "stopping": "clear 0/1 | SIGKILL:10,11 |",
        "clearing": "clear 0/1 | SIGKILL:10,11 |",
        "cleared": "clear 2/2 |  | status*1",
    },
    "finish 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "forking": "finish 0/1 | worker-0<stop worker-1<stop |",
        "running": "finish 0/1 | worker-0<stop worker-1<stop |",
        "at gates": "finish 0/1 | worker-0<stop worker-1<stop |",
        "halting": "finish 0/1 | worker-0<stop worker-1<stop |",
        "showing stacks": "finish 0/1 | worker-0<stop worker-1<stop |",
    },
    "stop 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "forking": "stop 0/1 | worker-0<stop worker-1<stop |",
        "running": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "at gates": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "halting": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "showing stacks": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "finishing": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
    },
    "stop 1 now": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11 |",
        "at gates": "clear 0/1 | SIGKILL:10,11 |",
        "halting": "clear 0/1 | SIGKILL:10,11 |",
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |",
        "finishing": "clear 0/1 | SIGKILL:10,11 |",
        "stopping": "clear 0/1 | SIGKILL:10,11 |",
    },
    "over 1": {
        "importing": "clear 1/1 |  | status*1",
        "ready": "clear 1/1 |  | status*1",
    },
    "part": {
        "importing": "stop 0/0 |  | status*1",
        "forking": "stop 0/1 | worker-0<stop worker-1<stop |",
        "running": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "at gates": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "halting": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "showing stacks": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
        "finishing": "stop 0/1 | worker-0<stop worker-1<stop SIGTERM:10,11 |",
    },
    "stacks": {
        "forking": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
        "running": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
        "at gates": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
        "halting": "none 0/1 | stacks:worker-0 stacks:worker-1 |",
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
        "running": "none 0/1 | SIGSTOP:11:theirs |",
        "at gates": "none 0/1 | SIGSTOP:11:theirs |",
        "halting": "none 0/1 | SIGSTOP:11:theirs |",
        "showing stacks": "stacks 0/1 | SIGSTOP:11:theirs |",
        "finishing": "finish 0/1 | SIGSTOP:11:theirs |",
        "stopping": "stop 0/1 | SIGSTOP:11:theirs |",
        "clearing": "clear 0/1 | SIGSTOP:11:theirs |",
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
    "the zygote is ready": {
        "importing": "clear 0/0 |  | ready status*2",
        "ready": "clear 0/0 |  | ready status*2",
        "forking": "none 0/1 |  | ready status*1",
        "running": "none 0/1 |  | ready status*1",
        "at gates": "none 0/1 |  | ready status*1",
        "halting": "none 0/1 |  | ready status*1",
        "showing stacks": "stacks 0/1 |  | ready status*1",
        "finishing": "finish 0/1 |  | ready status*1",
        "stopping": "stop 0/1 |  | ready status*1",
        "clearing": "clear 0/1 | SIGKILL:10,11 | ready status*1",
        "sweeping": "clear 0/1 |  | ready status*1",
        "cleared": "clear 1/1 |  | ready status*2",
    },
    "the zygote has forked": {
        "forking": "none 0/1 |  | task:worker-0:started task:worker-1:started",
    },
    "the zygote cannot fork": {
        "forking": "none 0/1 |  | note",
        "running": "none 0/1 |  | note",
        "at gates": "none 0/1 |  | note",
        "halting": "none 0/1 |  | note",
        "showing stacks": "stacks 0/1 |  | note",
        "finishing": "finish 0/1 |  | note",
        "stopping": "stop 0/1 |  | note",
        "clearing": "clear 0/1 |  | note",
    },
    "the zygote refuses": {
        "importing": "none 0/0 |  | never_ready",
        "ready": "clear 0/0 |  | never_ready",
        "forking": "none 0/1 |  | never_ready",
        "running": "none 0/1 |  | never_ready",
        "at gates": "none 0/1 |  | never_ready",
        "halting": "none 0/1 |  | never_ready",
        "showing stacks": "stacks 0/1 |  | never_ready",
        "finishing": "finish 0/1 |  | never_ready",
        "stopping": "stop 0/1 |  | never_ready",
        "clearing": "clear 0/1 |  | never_ready",
        "sweeping": "clear 0/1 |  | never_ready",
        "cleared": "clear 1/1 |  | never_ready",
    },
    "the zygote is lost": {
        "importing": "none 0/0 | start:2 | note status*1",
        "ready": "clear 0/0 | start:2 | note status*2",
        "forking": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1",
        "running": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1",
        "at gates": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1",
        "halting": "none 0/1 | start:2 | note task:worker-0:ended task:worker-1:ended status*1",
        "showing stacks": "stacks 1/1 | start:2 worker-0<closed worker-1<closed"
        " | note task:worker-0:ended task:worker-1:ended status*2",
        "finishing": "finish 1/1 | start:2 worker-0<closed worker-1<closed"
        " | note task:worker-0:ended task:worker-1:ended status*2",
        "stopping": "stop 1/1 | start:2 worker-0<closed worker-1<closed"
        " | note task:worker-0:ended task:worker-1:ended status*2",
        "clearing": "clear 1/1 | start:2 worker-0<closed worker-1<closed"
        " | note task:worker-0:ended task:worker-1:ended status*2",
        "sweeping": "clear 1/1 | start:2 worker-0<closed worker-1<closed | note status*2",
        "cleared": "clear 1/1 | start:2 | note status*2",
    },
    "the zygote has swept": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
        "forking": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "running": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "at gates": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "halting": "none 1/1 | worker-0<closed worker-1<closed | status*1",
        "showing stacks": "stacks 1/1 | worker-0<closed worker-1<closed | status*1",
        "finishing": "finish 1/1 | worker-0<closed worker-1<closed | status*1",
        "stopping": "stop 1/1 | worker-0<closed worker-1<closed | status*1",
        "clearing": "clear 1/1 | worker-0<closed worker-1<closed | status*1",
        "sweeping": "clear 1/1 | worker-0<closed worker-1<closed | status*1",
        "cleared": "clear 1/1 |  | status*1",
    },
    "one task fails": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*2",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | task:worker-1:ended status*1",
        "at gates": "none 0/1 |  | task:worker-1:ended status*1",
        "halting": "none 0/1 |  | task:worker-1:ended status*1",
        "showing stacks": "stacks 0/1 |  | task:worker-1:ended status*1",
        "finishing": "finish 0/1 |  | task:worker-1:ended status*1",
        "stopping": "stop 0/1 |  | task:worker-1:ended status*1",
        "clearing": "clear 0/1 |  | task:worker-1:ended status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*2",
    },
    "both tasks end": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*2",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "at gates": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "halting": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "showing stacks": "stacks 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "finishing": "finish 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "stopping": "stop 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "clearing": "clear 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*2",
    },
    "both tasks halt": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*2",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | task:worker-0:ended task:worker-1:ended status*1",
        "at gates": "none 0/1 | worker-0<meet 1 halt 7 worker-1<meet 1 halt 7"
        " | task:worker-0:ended task:worker-1:ended status*1",
        "halting": "none 0/1 | worker-0<meet 1 halt 7 worker-1<meet 1 halt 7"
        " | task:worker-0:ended task:worker-1:ended status*1",
        "showing stacks": "stacks 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "finishing": "finish 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "stopping": "stop 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "clearing": "clear 0/1 | sweep | task:worker-0:ended task:worker-1:ended status*1",
        "sweeping": "clear 0/1 |  | status*1",
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
        "cleared": "clear 1/1 |  | report:worker-1",
    },
    "a task reports an error": {
        "forking": "none 0/1 |  | error:worker-1",
        "running": "none 0/1 |  | error:worker-1",
        "at gates": "none 0/1 |  | error:worker-1",
        "halting": "none 0/1 |  | error:worker-1",
        "showing stacks": "stacks 0/1 |  | error:worker-1",
        "finishing": "finish 0/1 |  | error:worker-1",
        "stopping": "stop 0/1 |  | error:worker-1",
        "clearing": "clear 0/1 |  | error:worker-1",
        "sweeping": "clear 0/1 |  | error:worker-1",
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
        "cleared": "clear 1/1 |  | status*1",
    },
    "a task answers where it is": {
        "at gates": "none 0/1 |  | status*1",
        "halting": "none 0/1 |  | status*1",
    },
    "a task writes nonsense": {},
    "this machine has to leave": {
        "importing": "none 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
        "forking": "none 0/1 |  | status*1",
        "running": "none 0/1 |  | status*1",
        "at gates": "none 0/1 |  | status*1",
        "halting": "none 0/1 |  | status*1",
        "showing stacks": "stacks 0/1 |  | status*1",
        "finishing": "finish 0/1 |  | status*1",
        "stopping": "stop 0/1 |  | status*1",
        "clearing": "clear 0/1 |  | status*1",
        "sweeping": "clear 0/1 |  | status*1",
        "cleared": "clear 1/1 |  | status*1",
    },
    "the leading agent is silent": {
        "importing": "clear 0/0 |  | status*1",
        "ready": "clear 0/0 |  | status*1",
        "forking": "clear 0/1 |  |",
        "running": "clear 0/1 | SIGKILL:10,11:theirs |",
        "at gates": "clear 0/1 | SIGKILL:10,11:theirs |",
        "halting": "clear 0/1 | SIGKILL:10,11:theirs |",
        "showing stacks": "clear 0/1 | SIGKILL:10,11:theirs |",
        "finishing": "clear 0/1 | SIGKILL:10,11:theirs |",
        "stopping": "clear 0/1 | SIGKILL:10,11:theirs |",
        "clearing": "clear 0/1 | SIGKILL:10,11:theirs |",
        "cleared": "clear 1/1 |  | status*1",
    },
    "the imports take too long": {
        "importing": "none 0/0 |  | never_ready",
    },
    "the grace passes": {
        "finishing": "stop 0/1 | SIGTERM:10,11 |",
        "stopping": "stop 0/1 | SIGKILL:10,11 |",
    },
    "the time for stacks passes": {
        "showing stacks": "clear 0/1 | SIGKILL:10,11 |",
    },
    "the time for last words passes": {},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_in_a_state(message: str, state: str) -> None:
    host = HostedTasks().into(state)
    unchanged = host.summary().rstrip()
    MESSAGES[message](host)
    assert host.summary().rstrip() == TABLE[message].get(state, unchanged)


def test_the_table_names_states_and_messages_that_exist() -> None:
    assert list(TABLE) == list(MESSAGES)
    assert {state for row in TABLE.values() for state in row} == set(STATES)


# From one generation to the next


def test_a_later_generation_starts_once_the_one_before_is_swept() -> None:
    host = HostedTasks().into("running")
    host.obey(wish_to_run(2))
    host.exits(10, 11, ours=True)
    assert host.said[-1] == "sweep"
    host.said.clear()
    host.swept()
    assert host.said == ["worker-0<closed", "worker-1<closed", "launch:worker-0", "launch:worker-1"]
    assert (host.host.hosted.cleared, host.host.hosted.generation) == (1, 2)


def test_a_wish_that_was_overtaken_is_not_followed() -> None:
    host = HostedTasks().into("cleared")
    host.obey(wish_to_run(3))
    host.said.clear()
    host.obey(Clear(2))
    assert (host.said, host.host.wish.generation) == ([], 3)


def test_signs_of_life_are_told_and_their_absence_is_not() -> None:
    host = HostedTasks().into("running")
    host.host.start()
    told = [event["kind"] for event in host.events].count("alive")
    host.loop.passes("signs of life")
    assert [event["kind"] for event in host.events].count("alive") == told
    host.is_computing = True
    host.loop.passes("signs of life")
    host.is_computing = False
    assert [event["kind"] for event in host.events].count("alive") == told + 1
    host.lines["worker-0"].on_lines([b'{"kind": "note", "text": "here"}'])
    host.loop.passes("signs of life")
    host.loop.passes("signs of life")
    assert [event["kind"] for event in host.events].count("alive") == told + 2


def test_a_task_that_ended_starts_again_with_a_higher_launch_number() -> None:
    host = HostedTasks().into("running")
    host.exits(11)
    host.said.clear()
    for _ in range(2):
        host.obey(wish_to_run(1, launches={"worker-0": 2, "worker-1": 2}))
    assert host.said == ["worker-1<closed", "launch:worker-1"]
    assert host.host.hosted.tasks["worker-1"].launch == 2


def test_tasks_wait_until_the_zygote_is_ready() -> None:
    host = HostedTasks().into("importing")
    host.obey(wish_to_run())
    assert host.said == []
    host.ready()
    assert host.said == ["launch:worker-0", "launch:worker-1"]


def test_tasks_wait_for_the_checkpoint_that_they_resume_from() -> None:
    supply = Supply()
    host = HostedTasks(supply=supply).into("ready")
    host.obey(wish_to_run(checkpoints=["step-7"]))
    assert host.said == []
    supply.then("nobody answered")
    assert host.events == [{"kind": "never_ready", "text": "machine-0: nobody answered"}]
    supply.names = ["step-7"]
    supply.then(None)
    assert host.said == ["launch:worker-0", "launch:worker-1"]
    idle = HostedTasks(supply=Supply()).into("ready")
    idle.obey(wish_to_run(checkpoints=["step-7"], places={}))
    assert idle.host.hosted.generation == 1


def test_a_checkpoint_that_comes_too_late_starts_nothing() -> None:
    supply = Supply()
    host = HostedTasks(supply=supply).into("ready")
    host.obey(wish_to_run(checkpoints=["step-7"]))
    host.obey(Clear(1))
    host.statuses = 0
    supply.then(None)
    assert (host.said, host.statuses) == ([], 0)


def test_the_only_machine_makes_room_for_as_many_tasks_as_are_wanted() -> None:
    alone = replace(SPEC, machines=1)
    host = HostedTasks(alone).into("running")
    host.obey(Clear(1, want={"worker": 3}))
    status = host.host.status()
    assert (status.slots, len(status.ports), host.statuses) == ({"worker": 3}, 3, 1)
    host.obey(Halt(1, want={"worker": 3}))
    assert host.statuses == 1
    one_of_two = HostedTasks().into("running")
    one_of_two.obey(Halt(1, want={"worker": 3}))
    assert one_of_two.host.status().slots == {"worker": 2}


def test_each_generation_has_ports_of_its_own_and_its_tasks_have_their_ends() -> None:
    host = HostedTasks().into("ready")
    before = host.host.status().ports
    host.obey(wish_to_run())
    assert not set(before) & set(host.host.status().ports)
    assert all(line.is_handed_over for line in host.lines.values())


# Ends


def test_a_task_that_is_forked_while_it_should_end_is_ended() -> None:
    killed = HostedTasks().into("forking")
    killed.obey(Clear(1))
    killed.launched()
    assert killed.said == ["SIGKILL:10", "SIGKILL:11"]
    stopped = HostedTasks().into("forking")
    stopped.obey(Stop(1))
    stopped.launched()
    assert stopped.said[-2:] == ["SIGKILL:10", "SIGKILL:11"]


def served() -> HostedTasks:
    roles = {"chief": 1, "ps": 1}
    host = HostedTasks(replace(SPEC, sizes=roles), roles).into("ready")
    host.obey(wish_to_run(roles=roles))
    return host


def test_parameter_servers_are_stopped_when_the_leader_task_is_done() -> None:
    host = served()
    host.launched()
    host.said.clear()
    host.obey(Finish(1))
    assert host.said == ["chief-0<stop", "ps-0<stop", "SIGTERM:11"]
    assert host.loop.deadlines["grace"][0] == 3.0
    host.obey(Stop(1))
    assert host.said[3:] == ["chief-0<stop", "ps-0<stop", "SIGTERM:10"], "never a second SIGTERM"
    late = served()
    late.obey(Finish(1))
    late.launched()
    assert late.said[-1] == "SIGTERM:11"
    alone = HostedTasks().into("finishing")
    assert alone.loop.deadlines["grace"][0] == 30.0


@pytest.mark.parametrize(("wish", "grace"), [(Stop(1, 7.0), 7.0), (Stop(1), 30.0), (Finish(1), 30.0)])
def test_a_stop_has_its_own_grace_or_that_of_the_job(wish: Stop | Finish, grace: float) -> None:
    host = HostedTasks().into("running")
    host.obey(wish)
    if isinstance(wish, Finish):
        host.loop.passes("grace")
    assert host.loop.deadlines["grace"][0] == grace


def test_no_deadline_is_left_when_all_tasks_have_ended() -> None:
    for state in ("stopping", "showing stacks"):
        host = HostedTasks().into(state)
        host.exits(10, 11)
        assert not {"grace", "stacks"} & set(host.loop.deadlines)
    cleared = HostedTasks().into("stopping")
    cleared.obey(Clear(1))
    assert "grace" not in cleared.loop.deadlines


def test_what_ends_at_its_gate_or_by_the_host_is_no_failure() -> None:
    host = HostedTasks().into("at gates")
    halts(host)
    assert [(task.ours, task.failed_at, task.code) for task in host.host.status().tasks] == [
        (True, None, 143)
    ] * 2
    other = HostedTasks().into("at gates")
    other.obey(ToGates(1, MeetAt(1, "save", 7)))
    other.exits(10, status=PREEMPTED)
    other.exits(11, status=9, ours=True)
    assert [task.ours for task in other.host.status().tasks] == [False, True]
    assert [task.failed_at is None for task in other.host.status().tasks] == [False, True]


def test_a_task_that_the_kernel_killed_for_memory_is_known() -> None:
    host = HostedTasks().into("running")
    host.kills = 1
    host.exits(10, status=9)
    host.exits(11, status=9)
    assert [task.starved for task in host.host.status().tasks] == [True, False]


def test_a_task_that_reported_its_error_is_killed_if_it_does_not_end() -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="error", type="E", message="m", where="w")
    host.loop.passes("last words of worker-1")
    assert host.said == ["SIGKILL:11:theirs"]
    host.exits(11, status=9)
    assert host.host.status().tasks[1].error == {"type": "E", "message": "m", "where": "w"}
    ended = HostedTasks().into("running")
    ended.writes("worker-1", kind="error", type="E")
    ended.exits(11)
    assert not ended.loop.expects("last words of worker-1")


def test_the_last_words_of_a_task_are_read_before_its_end_is_told() -> None:
    host = HostedTasks().into("running")
    host.lines["worker-1"].unread = [b'{"kind":"report","step":9}']
    host.exits(11)
    kinds = [event["kind"] for event in host.events]
    assert kinds == ["report", "report", "task"]
    assert (host.events[1]["step"], host.events[1]["last"]) == (9, True)


# Processes that cannot be made


def test_a_fork_that_was_refused_is_tried_again_and_said_once() -> None:
    host = HostedTasks().into("forking")
    host.not_launched()
    host.host.on_reply(NotLaunched("worker-1", 11))
    host.loop.passes("start of worker-0")
    assert host.said == ["worker-0<closed", "launch:worker-0"]
    host.loop.passes("start of worker-0")  # an older one
    assert host.said == ["worker-0<closed", "launch:worker-0"]


def test_a_fork_that_is_refused_for_too_long_is_that_tasks_failure() -> None:
    host = HostedTasks().into("forking")
    host.loop.clock += 301
    host.not_launched()
    task = host.host.status().tasks[0]
    assert (task.code, task.ours, (task.error or {})["type"]) == (71, False, "OSError")
    assert [event["kind"] for event in host.events] == ["error", "task"]
    assert host.statuses == 1


@pytest.mark.parametrize("wish", [Clear(1), Stop(1), wish_to_run(2)])
def test_a_fork_that_was_refused_is_not_tried_again_for_a_gang_that_ends(wish: Any) -> None:
    host = HostedTasks().into("forking")
    host.not_launched()
    host.host.on_reply(NotLaunched("worker-1", 11))
    host.obey(wish)
    for name in ("worker-0", "worker-1"):
        host.loop.passes(f"start of {name}")
    assert "sweep" in host.said
    assert [task.ours for task in host.host.status().tasks] == [True, True]


# The zygote


def test_a_zygote_that_dies_while_it_imports_is_followed_by_one_that_does_not() -> None:
    host = HostedTasks().into("importing")
    host.host.on_zygote_lost()
    assert host.events[0]["text"] == "importing torch ended the process (exit code 1)"
    assert not host.zygote.warm
    host.host.on_zygote_lost()
    assert host.events[-1]["text"] == "the parent of the tasks died (exit code 1)"


def test_zygotes_that_die_as_they_start_are_not_replaced_forever() -> None:
    host = HostedTasks().into("importing")
    for _ in range(4):
        host.host.on_zygote_lost()
    text = f"{host.host.name}: the parent of the tasks dies as it starts (exit code 1)"
    assert host.events[-1] == {"kind": "never_ready", "text": text}
    assert not host.loop.expects("zygote")


def test_what_the_zygote_imported_is_told() -> None:
    host = HostedTasks().into("importing")
    host.zygote.keeper = 5
    host.host.on_reply(Ready(warm=False, why="threads", modules=["torch"]))
    assert host.events == [
        {"kind": "ready", "why": "threads", "modules": ["torch"], "keeper": 5},
        {"kind": "note", "text": "tasks are spawned, not forked: threads"},
    ]
    assert not host.loop.expects("zygote")


def test_a_machine_that_leaves_takes_no_more_tasks() -> None:
    host = HostedTasks().into("ready")
    assert host.host.status().ready
    host.host.leave()
    status = host.host.status()
    assert (status.ready, status.leaving, host.host.is_leaving) == (False, True, True)


def test_closing_closes_every_line() -> None:
    host = HostedTasks().into("running")
    assert (host.host.is_busy, host.host.is_cleared) == (True, False)
    host.host.close()
    assert host.said == ["close", "worker-0<closed", "worker-1<closed"]


# What tasks say


def test_a_pause_ends_by_itself() -> None:
    host = HostedTasks().into("running")
    host.obey(Fault(1, "pause", "worker-1", 5.0))
    host.loop.passes("pause of worker-1")
    assert host.said == ["SIGSTOP:11:theirs", "SIGCONT:11:theirs"]
    assert host.events == [{"kind": "note", "text": "chaos: continued worker-1"}]
    early = HostedTasks().into("running")
    early.obey(Fault(1, "pause", "worker-1", 5.0))
    early.obey(Fault(1, "continue", "worker-1"))
    assert not early.loop.expects("pause of worker-1")
    ended = HostedTasks().into("running")
    ended.obey(Fault(1, "pause", "worker-1", 5.0))
    ended.exits(11)
    ended.events.clear()
    ended.loop.passes("pause of worker-1")
    assert ended.events == []


def test_reports_are_merged_and_not_passed_on_too_often() -> None:
    host = HostedTasks().into("running")
    for step in (1, 2):
        host.writes("worker-1", kind="report", step=step)
    host.loop.clock += 0.1
    host.writes("worker-1", kind="report", step=3)
    assert [event["step"] for event in host.events] == [1, 3]


def test_where_a_task_is_goes_into_the_status() -> None:
    host = HostedTasks().into("at gates")
    host.writes("worker-1", kind="ask", purpose="save")
    host.writes("worker-1", kind="at", loop=1, meeting=3, step=4)
    gate = host.host.status().gates["worker-1"]
    assert (gate.asks, gate.meeting, gate.step) == (1, 3, 4)
    host.exits(11)
    assert list(host.host.status().gates) == ["worker-0"]


def test_nonsense_of_a_task_costs_the_line_and_is_noted() -> None:
    host = HostedTasks().into("running")
    host.lines["worker-1"].on_lines([b"nonsense", b'{"kind":"note","text":"sense"}'])
    host.host.dropped.flush()
    texts = [event["text"] for event in host.events]
    assert texts == ["worker-1: sense", "dropped 1 message of worker-1: text that is not JSON"]


ONE, TWO = "1" * 16, "2" * 16


def test_a_task_that_waits_for_a_folder_learns_that_it_is_made() -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="await", folder=ONE)
    assert host.said == []
    host.obey(Made(1, frozenset({ONE})))
    host.writes("worker-1", kind="await", folder=ONE)  # again: the line was lost
    host.writes("worker-0", kind="await", folder=TWO)
    host.obey(Made(1, frozenset({ONE, TWO})))
    assert host.said == [f"worker-1<made:{ONE}", f"worker-1<made:{ONE}", f"worker-0<made:{TWO}"]


def test_a_folder_is_made_in_one_generation_which_may_be_to_come() -> None:
    host = HostedTasks().into("ready")
    host.obey(Made(1, frozenset({ONE})))
    host.obey(wish_to_run(1))
    host.launched()
    host.writes("worker-1", kind="await", folder=ONE)
    assert f"worker-1<made:{ONE}" in host.said
    later = HostedTasks().into("running")
    later.obey(Made(2, frozenset({ONE})))
    later.writes("worker-1", kind="await", folder=ONE)
    assert later.said == []


def test_what_the_leader_task_makes_is_part_of_the_status() -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="made", folder=TWO)  # which is not for it to say
    host.writes("worker-0", kind="made", folder=ONE)
    host.writes("worker-0", kind="made", folder="../x")
    assert host.host.status().made == {ONE}
    assert Status.from_data(host.host.status().to_data()).made == {ONE}


EVALUATED = {"worker": 1, "evaluator": 1}


def evaluated(supply: Supply | None = None) -> HostedTasks:
    """worker-0 has the pid 10, evaluator-0 the pid 11."""
    host = HostedTasks(replace(SPEC, sizes=EVALUATED), EVALUATED, supply)
    host.ready()
    host.obey(training())
    host.launched()
    host.said.clear()
    host.events.clear()
    return host


def training(**more: Any) -> Run:
    tasks = form(EVALUATED)
    gang = replace(wish_to_run(1).gang, tasks=tasks, addresses={task.name: "h:1" for task in tasks})
    return Run(gang, {"machine-0": [task.name for task in tasks]}, **more)


def test_once_the_leader_task_is_done_the_evaluator_is_asked_to_end_by_itself_and_others_are_ended() -> None:
    host = evaluated()
    host.obey(training(is_done=True))
    assert host.said == ["evaluator-0<stop", "worker-0<stop"]
    host.loop.passes(OTHERS)
    host.loop.passes(OTHERS)
    assert host.said[2:] == ["SIGTERM:10", "SIGKILL:10"]  # the evaluator has as long as it takes


def test_an_evaluator_that_dies_then_starts_again_and_knows_that_training_has_ended() -> None:
    host = evaluated()
    host.obey(training(is_done=True))
    host.exits(10, status=0)
    host.exits(11)
    host.said.clear()
    host.obey(training(is_done=True, launches={"evaluator-0": 2}))
    assert [word for word in host.said if "<stop" in word] == ["evaluator-0<stop"]
    assert [process.name for process in host.host.hosted.alive()] == ["evaluator-0"]


def test_a_host_that_joins_then_runs_the_evaluator_alone() -> None:
    host = HostedTasks(replace(SPEC, sizes=EVALUATED), EVALUATED)
    host.ready()
    host.obey(training(is_done=True))
    assert list(host.host.hosted.tasks) == ["evaluator-0"]


def test_the_evaluator_is_asked_to_end_only_when_the_last_checkpoints_are_here() -> None:
    supply = Supply()
    host = evaluated(supply)
    supply.is_complete = False
    host.obey(training(is_done=True))
    host.loop.passes(SUPPLY)
    assert "evaluator-0<stop" not in host.said
    supply.is_complete = True
    host.loop.passes(SUPPLY)
    assert host.said[-1] == "evaluator-0<stop"


def test_scores_are_part_of_the_status_and_no_other_report_is() -> None:
    host = evaluated()
    host.writes("evaluator-0", kind="follow")
    for step in (10, 20):  # at the same moment: none replaces the other
        host.writes("evaluator-0", kind="report", step=step, generation=1, accuracy=step / 100)
    host.writes("evaluator-0", kind="report", step=30, loss=1.0)
    host.writes("worker-0", kind="follow")
    host.writes("worker-0", kind="report", step=3, generation=1, loss=1.0)
    worker, evaluator = Status.from_data(host.host.status().to_data()).tasks
    assert (worker.follows, worker.scores, evaluator.follows) == (False, (), True)
    assert [(score["step"], score["accuracy"]) for score in evaluator.scores] == [(10, 0.1), (20, 0.2)]
    assert [event["step"] for event in host.events] == [30, 3]


def with_gpus() -> HostedTasks:
    host = HostedTasks()
    host.figures = {}
    return host


def test_what_gpus_say_goes_to_the_leader_as_long_as_a_task_uses_them() -> None:
    host = with_gpus().into("running")
    host.figures = {"worker-1": {"memory": 5, "memory_total": 9, "gpus": ["1"]}}
    host.loop.passes(GPUS)
    host.loop.passes(GPUS)
    told = {"kind": "gpu", "task": "worker-1", "memory": 5, "memory_total": 9, "gpus": ["1"]}
    assert host.events == [told, told]
    host.exits(11)
    host.events.clear()
    host.loop.passes(GPUS)
    assert host.events == []


def test_a_machine_without_gpus_does_not_look_again() -> None:
    host = HostedTasks().into("running")
    assert not host.loop.expects(GPUS)


def test_the_trouble_of_a_gpu_is_part_of_the_outcome() -> None:
    host = HostedTasks().into("running")
    host.trouble = Trouble("memory", "GPU 0 ran out of memory; use smaller batches")
    host.exits(10)
    first, second = Status.from_data(host.host.status().to_data()).tasks
    assert (first.trouble, first.advice) == host.trouble
    assert (second.trouble, second.advice) == (None, None)


def test_a_task_that_did_not_fail_has_no_trouble() -> None:
    host = HostedTasks().into("running")
    host.trouble = Trouble("memory", "GPU 0 ran out of memory; use smaller batches")
    host.exits(10, ours=True)
    host.exits(11, status=0)
    assert [task.trouble for task in host.host.status().tasks] == [None, None]


def test_a_generation_is_cleared_only_when_gpus_have_freed_its_memory() -> None:
    host = HostedTasks().into("sweeping")
    host.held = None  # the driver has not answered
    host.swept()
    host.held = "GPU 0 has 61.00 GiB in use"
    host.loop.passes(GPU_MEMORY)
    assert not host.host.is_cleared
    host.obey(wish_to_run(2))
    assert "launch:worker-0" not in host.said
    host.held = ""
    host.loop.passes(GPU_MEMORY)
    assert "launch:worker-0" in host.said
    assert not host.loop.expects(GPU_MEMORY)
    assert "note" not in [event["kind"] for event in host.events]


def test_memory_that_is_never_freed_is_said_and_does_not_stop_the_run() -> None:
    host = HostedTasks().into("sweeping")
    host.held = "GPU 0 has 61.00 GiB in use"
    host.swept()
    host.loop.clock += 5.0
    host.loop.passes(GPU_MEMORY)
    assert host.host.is_cleared
    [note] = [event["text"] for event in host.events if event["kind"] == "note"]
    assert note == ("the memory of dead tasks on GPUs is not free after 5 s: GPU 0 has 61.00 GiB in use")


def test_a_run_that_ends_does_not_wait_for_gpus() -> None:
    host = HostedTasks().into("finishing")
    host.held = "GPU 0 has 61.00 GiB in use"
    host.exits(10, 11, status=0)
    host.swept()
    assert host.host.is_cleared
