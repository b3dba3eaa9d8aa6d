"""The agent's life: start the zygote, form a generation, watch it, form the next or give the verdict.

One thread, one selector, no blocking call but the select itself. A generation goes through

    forming -> running -> ending      a task failed: the others are killed at once
                       -> finishing   the leader ended with 0: the others may end too
                       -> stopping    somebody asked, or a limit was reached: SIGTERM, grace, SIGKILL

and then every process below the zygote is swept away before anything else is decided.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from oarlock.agent import culprit, defaults, ports
from oarlock.agent.budget import Budget, Loss
from oarlock.agent.member import Member
from oarlock.agent.record import Record
from oarlock.agent.spec import Spec
from oarlock.agent.warmth import ZygoteProcess
from oarlock.cluster import Task, form, restarts_with
from oarlock.contract import Gang, environment

_LAST_WORDS = 5.0  # seconds for a task that reported its error to end by itself
_STOPPED_BY_USER = 130
_PREEMPTED = 143
_OUT_OF_TIME = 124


class Supervisor:
    def __init__(self, spec: Spec, record: Record) -> None:
        self.spec = spec
        self.record = record
        self.tasks = form(spec.sizes)
        self.generation = record.state.generation
        self.phase = "forming"
        self.members: dict[str, Member] = {}
        self.budget = Budget(spec.limits.restarts)
        self.alone: dict[str, Budget] = {}  # of tasks that start again by themselves
        self.best_step = _best(record)
        self.progressed = self.reports = False
        self.addresses: dict[str, str] = {}
        self.stop: tuple[str, int, str] | None = None  # state, code, reason
        self.blame: str | None = None  # why a generation ends that no task's exit ended
        self.code: int | None = None  # the verdict
        self.selector = selectors.DefaultSelector()
        self.deadlines: dict[str, tuple[float, Callable[[], None]]] = {}
        self.zygote = ZygoteProcess(spec)

    def run(self) -> int:
        self._listen_to_signals()
        self._start_zygote()
        if self.spec.limits.runtime is not None:
            self._after("runtime", self.spec.limits.runtime, self._on_runtime)
        while self.code is None:
            for key, _ in self.selector.select(self._until_next_deadline()):
                if key.fd in self.selector.get_map():  # an earlier callback may have closed it
                    key.data()
            self._check_deadlines()
        self.zygote.close()
        return self.code

    # Signals and deadlines

    def _listen_to_signals(self) -> None:
        wake, wake_write = socket.socketpair()
        wake.setblocking(False)
        wake_write.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        self._wake_write = wake_write
        for sig in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.selector.register(wake, selectors.EVENT_READ, lambda: self._on_signals(wake.recv(64)))

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGINT and self.phase == "stopping":
                self._kill()
            elif number == signal.SIGINT:
                self._stop("stopped", _STOPPED_BY_USER, "stopped by the user")
            elif number == signal.SIGTERM:
                self._stop("stopped", _PREEMPTED, "the machine asked it to leave (SIGTERM)")

    def _on_runtime(self) -> None:
        limit = self.spec.limits.runtime
        self._stop("failed", _OUT_OF_TIME, f"limits.runtime of {limit:g} s is over")

    def _after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self.deadlines[name] = (time.monotonic() + seconds, action)

    def _until_next_deadline(self) -> float | None:
        if not self.deadlines:
            return None
        return max(0.0, min(when for when, _ in self.deadlines.values()) - time.monotonic())

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for name, (when, action) in list(self.deadlines.items()):
            if when <= now and name in self.deadlines:
                del self.deadlines[name]
                action()

    # The zygote

    def _start_zygote(self) -> None:
        self.zygote.start(defaults.import_time(self.spec, len(self.tasks)))
        self.selector.register(self.zygote.sock, selectors.EVENT_READ, self._on_zygote)
        self._after("ready", self.spec.limits.rendezvous, self._on_never_ready)

    def _on_zygote(self) -> None:
        message = self.zygote.receive()
        if message is None:
            self._on_zygote_lost()
        elif "ready" in message:
            self._on_ready(message["ready"])
        elif "launched" in message:
            self._on_launched(message["launched"], message["pid"])
        elif "exited" in message:
            self._on_exit(message["exited"], message["status"])
        elif "swept" in message:
            self._on_swept()

    def _on_ready(self, ready: dict[str, Any]) -> None:
        self.deadlines.pop("ready", None)
        self.record.emit("ready", **{key: value for key, value in ready.items() if value})
        if not ready["warm"] and self.spec.warm:
            self.record.emit("note", text=f"tasks are spawned, not forked: {ready['why']}")
        self._form()

    def _on_never_ready(self) -> None:
        limit = self.spec.limits.rendezvous
        what = ", ".join(self.spec.modules) or "the interpreter"
        self._end("failed", 1, f"importing {what} took longer than limits.rendezvous ({limit:g} s)")

    def _on_zygote_lost(self) -> None:
        """Its tasks die with it (the kernel sees to that); what they leave is ours to end."""
        self.selector.unregister(self.zygote.sock)
        was_ready = "ready" not in self.deadlines
        code = self.zygote.bury()
        if not was_ready and self.spec.warm and self.zygote.warm:
            self.record.emit(
                "note", text=f"importing {', '.join(self.spec.modules)} ended the process ({code})"
            )
            self.zygote.warm = False  # let the program's own import say why
            self._start_zygote()
            return
        for member in self.members.values():
            if member.is_alive:
                member.status = signal.SIGKILL
                self._record_exit(member)
        if self.phase in ("forming", "running"):
            self.phase = "ending"
            self.blame = f"the process that parents the tasks died (exit code {code})"
        self._on_swept()

    # Forming and watching a generation

    def _form(self) -> None:
        self.generation += 1
        self.phase = "running"
        self.blame = None
        self.progressed = False
        self.formed_at = time.monotonic()
        self.deadlines.pop("stall", None)
        chosen = ports.free_ports(len(self.tasks))
        self.addresses = {task.name: f"127.0.0.1:{port}" for task, port in zip(self.tasks, chosen)}
        self.record.emit("generation", generation=self.generation, tasks=[task.name for task in self.tasks])
        self.members = {}
        for task in self.tasks:
            self._launch(task)

    def _launch(self, task: Task) -> None:
        member = Member(task, self.record.log(self.generation, task.name))
        self.members[task.name] = member
        launch = {
            "task": task.name,
            "parent": self.zygote.pid,
            "cwd": self.spec.cwd,
            "program": asdict(self.spec.program),
            "env": {**self.spec.env, **environment(self._gang(), task, self._folders(task))},
        }
        self.zygote.send({"launch": launch}, member.ends)
        member.handed_over()
        self.selector.register(member.output, selectors.EVENT_READ, lambda: self._on_output(member))
        self.selector.register(member.line, selectors.EVENT_READ, lambda: self._on_events(member))

    def _gang(self) -> Gang:
        return Gang(
            run=self.spec.run,
            generation=self.generation,
            tasks=self.tasks,
            addresses=self.addresses,
            restarts=self.record.state.restarts,
            max_restarts=self.spec.limits.restarts,
            seed=self.spec.seed,
        )

    def _folders(self, task: Task) -> dict[str, str]:
        """Every task must be able to "save", as collectives demand; only the leader's is kept."""
        if task.is_leader:
            return self.spec.folders
        model = self.record.scratch(task.name) / "model"
        model.mkdir(exist_ok=True)
        return {**self.spec.folders, "model": str(model)}

    def _on_launched(self, name: str, pid: int) -> None:
        self.members[name].pid = pid
        self.record.emit("task", task=name, state="started", pid=pid)
        if self.phase in ("ending", "stopping"):  # a decision fell while it was being forked
            self._signal([self.members[name]], signal.SIGKILL)

    def _on_output(self, member: Member) -> None:
        if not member.read_output():
            self.selector.unregister(member.output)

    def _on_events(self, member: Member) -> None:
        arrived, is_open = member.read_events()
        for event in arrived:
            getattr(self, f"_on_{event['kind']}")(member, event)
        if not is_open:
            self.selector.unregister(member.line)

    def _on_report(self, member: Member, event: dict[str, Any]) -> None:
        self.reports = True
        step = event.get("step")
        if isinstance(step, (int, float)) and step > self.best_step:
            self.best_step = step
            self.progressed = True
        if self.spec.limits.stall is not None and self.phase == "running":
            self._after("stall", self.spec.limits.stall, self._on_stall)
        member.report = {**(member.report or {}), **event}
        now = time.monotonic()
        if now - member.recorded_at >= self._report_interval(now):
            self._record_report(member)

    def _report_interval(self, now: float) -> float:
        """Twice a second at first, every ten seconds after some hours: a record must stay small."""
        return min(max(0.5, (now - self.formed_at) / 600), 10.0)

    def _record_report(self, member: Member) -> None:
        if member.report is not None:
            event, member.report = member.report, None
            member.recorded_at = time.monotonic()
            self.record.emit(**{**event, "kind": "report", "task": member.name})

    def _on_error(self, member: Member, event: dict[str, Any]) -> None:
        member.error = event
        member.failed_at = event["t"]
        self.record.emit(**{**event, "task": member.name})
        if member.is_alive and self.phase == "running":
            self._after(f"last words of {member.name}", _LAST_WORDS, lambda: self._kill([member], ours=False))

    def _on_note(self, member: Member, event: dict[str, Any]) -> None:
        self.record.emit("note", text=f"{member.name}: {event.get('text', '')}")

    def _on_stall(self) -> None:
        slowest = min(self._alive(), key=lambda member: member.recorded_at, default=None)
        if slowest is not None and self.phase == "running":
            self.blame = f"no task reported a step for limits.stall ({self.spec.limits.stall:g} s)"
            slowest.failed_at = time.time()
            self._end_generation()

    # Ends

    def _on_exit(self, pid: int, status: int) -> None:
        member = next(found for found in self.members.values() if found.pid == pid and found.is_alive)
        if member.line in self.selector.get_map():
            self._on_events(member)  # its last words may still be on the line
        member.status = status
        self._record_exit(member)
        if self.phase == "running":
            self._judge(member)
        if self.phase != "running" and not self._alive():
            self.zygote.send({"sweep": True})

    def _record_exit(self, member: Member) -> None:
        self._record_report(member)
        self.deadlines.pop(f"last words of {member.name}", None)
        if member.code != 0 and not member.ours:
            member.failed_at = member.failed_at or time.time()
        self.record.emit("task", task=member.name, state="ended", code=member.code, ours=member.ours)

    def _judge(self, member: Member) -> None:
        if member.code == 0:
            if member.task.is_leader:
                self._finish()
            return
        group = restarts_with(member.task, self.tasks)
        if group == (member.task,) and len(self.tasks) > 1:
            self._restart_alone(member)
        else:
            self._end_generation()

    def _restart_alone(self, member: Member) -> None:
        budget = self.alone.setdefault(member.name, Budget(self.spec.limits.restarts))
        refusal = budget.refuses(self._loss(member, progressed=self.progressed))
        if refusal is None:
            self._retire(member)
            self.record.emit("restart", left=budget.left, **culprit.describe(member))
            self._launch(member.task)
        elif member.task.role == "evaluator":
            text = f"{member.name} is not started again: {refusal}; training goes on without it"
            self.record.emit("note", text=text)
        else:
            self.budget.left = 0  # the whole gang would only meet the same failure again
            self._end_generation()

    def _end_generation(self) -> None:
        self.phase = "ending"
        self.deadlines.pop("stall", None)
        self._kill()

    def _finish(self) -> None:
        """The leader is done. Servers never end by themselves; the rest gets the grace to."""
        self.phase = "finishing"
        self.deadlines.pop("stall", None)
        self._signal([member for member in self._alive() if member.task.role == "ps"], signal.SIGTERM)
        for member in self._alive():
            member.ask("stop")
        self._after("grace", self.spec.limits.grace, self._terminate)

    def _stop(self, state: str, code: int, reason: str) -> None:
        if self.phase == "stopping":
            return
        self.stop = (state, code, reason)
        self.record.emit("stop", reason=reason)
        if not self._alive() and self.phase == "forming":
            self._end(state, code, reason)  # the zygote is still importing: nothing to wait for
            return
        if self.phase != "ending":
            self.phase = "stopping"
            for member in self._alive():
                member.ask("stop")
            self._terminate()

    def _terminate(self) -> None:
        self._signal(self._alive(), signal.SIGTERM)
        self._after("grace", self.spec.limits.grace, self._kill)

    def _kill(self, members: Sequence[Member] | None = None, ours: bool = True) -> None:
        self._signal(self._alive() if members is None else members, signal.SIGKILL, ours)

    def _signal(self, members: Sequence[Member], sig: int, ours: bool = True) -> None:
        for member in members:
            member.ours = member.ours or ours
        pids = [member.pid for member in members if member.pid is not None]
        if pids:
            self.zygote.send({"signal": int(sig), "pids": pids})

    def _alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_alive]

    def _retire(self, member: Member) -> None:
        for watched in (member.output, member.line):
            if watched in self.selector.get_map():
                self.selector.unregister(watched)
        member.close()

    def _on_swept(self) -> None:
        """Nobody is left below the zygote: what next?"""
        self.deadlines.pop("grace", None)
        for member in self.members.values():
            self._retire(member)
        if self.stop is not None:
            self._end(*self.stop)
        elif self.phase == "finishing":
            self._end("succeeded", 0)
        else:
            self._next_generation()

    def _next_generation(self) -> None:
        guilty = culprit.find(self.members.values())
        told = culprit.describe(guilty) if guilty else {}
        if self.blame:
            told["reason"] = self.blame
        refusal = self.budget.refuses(self._loss(guilty, self.progressed))
        if refusal is not None:
            code = guilty.code if guilty and guilty.code else 1
            self._end("failed", code, told.pop("reason", ""), refusal=refusal, **told)
            return
        self.phase = "forming"
        self.record.emit("restart", left=self.budget.left, **told)
        if self.zygote.is_running:
            self._form()
        else:
            self._start_zygote()

    def _loss(self, member: Member | None, progressed: bool) -> Loss:
        return Loss(
            signature=culprit.signature(member) if member else str(self.blame),
            signalled=member is None or member.signal is not None,
            progressed=progressed,
            reports=self.reports,
            lived=time.monotonic() - (member.began if member else self.formed_at),
        )

    def _end(self, state: str, code: int, reason: str = "", **fields: Any) -> None:
        self.phase = "over"
        self.record.end(state, code, **({"reason": reason} if reason else {}), **fields)
        self.code = code


def _best(record: Record) -> float:
    return max((task.step or 0 for task in record.state.tasks.values()), default=0)
