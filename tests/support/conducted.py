"""A conductor without agents: it hears method calls, and what it sends and records are lists of words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oarlock.agent.lead import client_questions
from oarlock.agent.lead.agents.placement import Agent
from oarlock.agent.lead.conductor import Conductor
from oarlock.agent.lead.phase_machine import PhaseMachine
from oarlock.agent.protocol.gates import Whereabouts
from oarlock.agent.protocol.host_status import Status
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.spec import IngestSpec, LimitsSpec, Program, Spec
from oarlock.agent.protocol.wishes import Order, Wish
from oarlock.run.run_state import RunState
from tests.support.lone_leader import LoneLeader
from tests.support.still_loop import StillLoop

SPEC = Spec(
    run="r",
    folder="/run",
    cwd="/",
    program=Program("program", "p"),
    sizes={"worker": 2},
    folders={},
    limits=LimitsSpec(runtime=3600.0),
    machines=2,
    brings_crew=False,
    ingest=IngestSpec("key", where="each"),
)
EVALUATED = replace(
    SPEC, sizes={"worker": 2, "evaluator": 1}, machines=3, limits=replace(SPEC.limits, restarts=1)
)
ELASTIC = replace(SPEC, least={"worker": 1})
SPECS = {"with an evaluator": EVALUATED, "scoring": EVALUATED, "with fewer": ELASTIC}  # by an end of a phase
FOLDER = frozenset({"1" * 16})  # made once, by the leader task
CHECKPOINT = "step-0000000010-g1"


class Journal:
    """The record, in memory."""

    def __init__(self) -> None:
        self.state = RunState("r")
        self.events: list[tuple[str, dict[str, Any]]] = []

    def emit(self, kind: str, /, **fields: Any) -> None:
        self.state.apply({"t": 1000.0, "kind": kind, **fields})
        self.events.append((kind, fields))

    def end(self, state: str, code: int, **fields: Any) -> None:
        self.emit("end", state=state, code=code, **fields)


class SeatOrder:
    """Whoever comes last has the seat."""

    def take(self, seat: str, machine: str) -> str | None:
        return "this machine was given up" if machine == "given up" else None


class Conducted:
    """A run of worker-0 on machine-0, which leads, and worker-1 on machine-1, if `spec` says no other. An
    evaluator is alone on machine-3."""

    def __init__(self, spec: Spec = SPEC) -> None:
        self.loop = StillLoop()
        self.journal = Journal()
        self.leader = LoneLeader()
        self.machine = PhaseMachine(self.loop, spec, self.journal, SeatOrder(), self.leader)
        self.conductor = Conductor(self.machine)
        self.sent: list[str] = []
        self.agents: dict[str, Agent] = {}
        self.tasks: dict[str, list[Outcome]] = {}
        self.gates: dict[str, Whereabouts] = {}
        self.heard: set[str] = set()  # kinds of events
        self._deadlines: dict[str, Any] = {}  # when it came into its phase

    @classmethod
    def of(cls, phase: str) -> Conducted:
        """A run that is in this phase."""
        return cls(next((spec for end, spec in SPECS.items() if phase.endswith(end)), SPEC)).into(phase)

    # What agents say

    def join(self, name: str, uid: str | None = None, machine: str | None = None) -> str | None:
        uid = uid or name
        agent = Agent(
            name,
            uid,
            machine or uid,
            "host",
            lambda wish: self._on_wish(name, wish),
            is_leading=name == "machine-0",
        )
        refusal = self.conductor.join(agent)
        if refusal is None:
            self.agents[name] = agent
        return refusal

    def status(self, name: str, **more: Any) -> None:
        """What the host said before, with these fields changed."""
        agent = self.agents[name]
        before = agent.status or Status(0, 0, True, (20000,), {"worker": 1})
        self.conductor.hear(agent, Status(**{**vars(before), **more}))

    def outcome(self, name: str, task: str, code: int | None, **more: Any) -> None:
        """One task of a host runs or has ended."""
        failed = {"failed_at": 1000.0} if code and not more.get("ours") else {}
        told = Outcome(task, code=code, **{"began": 900.0, **failed, **more})
        others = [one for one in self.tasks.get(name, []) if one.name != task]
        self.tasks[name] = [*others, told]
        number = self.machine.number
        gates = {task: self.gates[task]} if task in self.gates and code is None else {}
        self.status(name, generation=number, tasks=tuple(self.tasks[name]), gates=gates)

    def event(self, name: str, kind: str, **fields: Any) -> None:
        self.heard.add(kind)
        self.conductor.hear_event(self.agents[name], {"kind": kind, "t": 1000.0, **fields})

    def ask(self, **fields: Any) -> dict[str, Any]:
        return client_questions.answer(Question(**fields), self.conductor)

    # Phases

    def into(self, phase: str) -> Conducted:
        """Bring it there, the usual way, and forget what it said on the way."""
        getattr(self, f"_into_{phase.replace(' ', '_')}")()
        assert self.machine.phase == phase.split()[0], self.machine.phase
        self.sent.clear()
        self.journal.events.clear()
        self._deadlines = self._named_deadlines()
        return self

    def _into_gathering(self) -> None:
        self.machine.start()
        self.join("machine-0")
        self.join("machine-1")
        self.status("machine-0")
        self.status("machine-1", ready=False)

    def _into_running(self) -> None:
        self._into_gathering()
        self.status("machine-1", ready=True)
        self.outcome("machine-0", "worker-0", None)
        self.outcome("machine-1", "worker-1", None)

    def _into_running_with_gates(self) -> None:
        self._into_gathering()
        self.status("machine-1", ready=True)
        self.gates = {"worker-0": Whereabouts(1), "worker-1": Whereabouts(1)}
        self.outcome("machine-0", "worker-0", None)
        self.outcome("machine-1", "worker-1", None)

    def _into_halting_to_stop(self) -> None:
        self._into_running_with_gates()
        self.conductor.on_user_stop()

    def _into_halting_to_reform(self) -> None:
        self._into_running_with_gates()
        self.machine.reform("more machines have joined")

    def _into_gathering_with_fewer(self) -> None:
        self._into_gathering()

    def _into_running_with_fewer(self) -> None:
        self._into_gathering()
        self.loop.passes("more agents")
        self.outcome("machine-0", "worker-0", None)

    def _into_running_with_an_evaluator(self) -> None:
        self._into_gathering()
        self.status("machine-1", ready=True)
        self.join("machine-3")
        self.status("machine-3", slots={"evaluator": 1})
        for name, task in (("machine-0", "worker-0"), ("machine-1", "worker-1")):
            self.outcome(name, task, None)
        self.outcome("machine-3", "evaluator-0", None, follows=True)
        self.leader.checkpoints.held = [CHECKPOINT]

    def _into_clearing_with_an_evaluator(self) -> None:
        self._into_running_with_an_evaluator()
        self.status("machine-0", made=FOLDER)
        self.outcome("machine-1", "worker-1", 1)

    def _into_scoring(self) -> None:
        self._into_running_with_an_evaluator()
        self.outcome("machine-0", "worker-0", 0)

    def _into_clearing(self) -> None:
        self._into_running()
        self.outcome("machine-1", "worker-1", 1)

    def _into_finishing(self) -> None:
        self._into_running()
        self.outcome("machine-0", "worker-0", 0)

    def _into_stopping(self) -> None:
        self._into_running()
        self.conductor.on_user_stop()

    def _into_over(self) -> None:
        self._into_stopping()
        self.status("machine-0", cleared=1)
        self.status("machine-1", cleared=1)

    def _into_over_with_success(self) -> None:
        self._into_finishing()
        self.status("machine-0", cleared=1)
        self.status("machine-1", cleared=1)

    # What came of it

    @property
    def phase(self) -> str:
        return self.machine.phase

    def summary(self) -> str:
        """The phase, what was sent to whom, and what was recorded."""
        events = " ".join(_event_in_words(kind, fields) for kind, fields in self.journal.events)
        return " | ".join((self.phase, " ".join(_together(self.sent)), events))

    def deadlines(self) -> str:
        """Which are set or moved since it came into its phase, and which are no longer."""
        before, now = self._deadlines, self._named_deadlines()
        changed = [f"+{name}" for name in now if now[name] is not before.get(name)]
        return ", ".join([*changed, *(f"-{name}" for name in before if name not in now)])

    def _named_deadlines(self) -> dict[str, Any]:
        return {
            name.rstrip("0123456789 ") if "dropped" in name else name: deadline
            for name, deadline in sorted(self.loop.deadlines.items())
        }

    def _on_wish(self, name: str, wish: Wish | Order) -> None:
        data = wish.to_data()
        words = [data["do"], str(data["generation"])]
        words += [f"{key}={data[key]}" for key in ("code", "fault", "launches") if data.get(key)]
        words += [key for key in ("now", "stacks", "replaced", "done") if data.get(key)]
        words += [f"grace={data['grace']:g}"] if data.get("grace") else []
        if (data.get("want") or SPEC.sizes)["worker"] != 2:
            words.append(f"want={data['want']['worker']}")
        if data["do"] in ("meet", "where", "carry-on"):
            words.append(str(data["meeting"]))
        self.sent.append(f"{name[-1]}:{','.join(words)}")


def _together(sent: list[str]) -> list[str]:
    """`*:` for what went to both machines of the trainers, one after the other."""
    found: list[str] = []
    for word in sent:
        if found and word[0] == "1" and found[-1] == f"0{word[1:]}":
            found[-1] = f"*{word[1:]}"
        else:
            found.append(word)
    return found


def _event_in_words(kind: str, fields: dict[str, Any]) -> str:
    shown = {
        "end": ("state", "code"),
        "restart": ("left", "forgiven", "alone"),
        "generation": ("generation",),
    }
    return ":".join([kind, *(str(fields[name]) for name in shown.get(kind, ()) if name in fields)])
