"""`oarlock stacks`: the Python stacks of running tasks, read from their logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from oarlock import agent
from oarlock.agent.protocol.pod_paths import AGENT
from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.cli.session.ask_agent import RunRefusedError, ask, require_running
from oarlock.engines.engine import engine_of
from oarlock.errors import JobError
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Tail
from oarlock.run.run_state import RunState
from oarlock.screens.output import print_json, say
from oarlock.system import stack_dump
from oarlock.system.polling import wait_for

_PATIENCE = 10.0
_POLL = 0.02
# A program may have begun a line when faulthandler starts to write.
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$")
_FRAME = re.compile(r'  (?:File ".*", line \S+ in .+|\.\.\.|<.+>|Garbage-collecting)$')
# Oarlock's own frames below the program's: the zygote, the runner, and the line that starts them.
_HERE = re.escape(str(Path(agent.__file__).parent.parent))
_AGENT = f"(?:{_HERE}|{AGENT}/oarlock)/(?:agent|system)"
_OURS = re.compile(rf'  File "(?:{_AGENT}/.*|<string>", line 1 in <module>$)')


@dataclass
class TaskStacks:
    """The answer of one task so far."""

    task: str
    state: str = "no answer"  # shown, stopped, no python, no answer
    stack: list[str] = field(default_factory=list)

    def hear(self, text: str) -> None:
        """Take the next line of the task's log into account."""
        us, _, said = text.partition(f"oarlock: {self.task} ")
        said = "" if us else said
        if said == stack_dump.SHOWS:
            self.state, self.stack = "begun", []
        elif said == stack_dump.SHOWN and self.state == "begun":
            self.state = "shown"
        elif said in _OTHERS:
            self.state = _OTHERS[said]
        elif self.state == "begun" and (thread := _THREAD.search(text)):
            self.stack.append(thread[0])
        elif self.state == "begun" and self.stack and _FRAME.match(text) and not _OURS.match(text):
            self.stack.append(text)

    @property
    def is_complete(self) -> bool:
        """Whether the answer has ended."""
        return self.state not in ("begun", "no answer")


_OTHERS = {stack_dump.STOPPED: "stopped", stack_dump.NO_PYTHON: "no python"}


@click.command("stacks")
@run_argument
@click.option("--task", "tasks", multiple=True, metavar="TASK", help="Only this task; repeatable.")
@json_option("a JSON array: task, state, stack")
def verb(name: str | None, tasks: tuple[str, ...], as_json: bool) -> int:
    """Show the Python stack of every task of a run.

    The run is not disturbed, and its logs also get the stacks. A task that is blocked in C code answers as
    well; a task that is stopped (SIGSTOP), or not a Python program, is shown as such.
    """
    run = find_run.find(name)
    require_running(run)
    state = run.state()
    with engine_of(run).following(run):
        answers = _collect(run, state.generation, _running(state, tasks))
    if as_json:
        print_json([asdict(answer) for answer in answers])
    else:
        for answer in answers:
            _print(answer)
    return 0 if all(answer.is_complete for answer in answers) else 1


def _running(state: RunState, chosen: Sequence[str]) -> list[str]:
    for name in chosen:
        if name not in state.tasks:
            raise JobError(f"{state.run} has no task {name}; it has {', '.join(state.tasks)}")
        if state.tasks[name].state != "running":
            raise RunRefusedError(f"{name} is not running: it is {state.tasks[name].state}")
    found = [task.name for task in state.tasks.values() if task.state == "running"]
    if not found:
        raise RunRefusedError(f"no task of {state.run} is running: it is {state.state}")
    return [name for name in found if name in chosen or not chosen]


def _collect(run: RunFolder, generation: int, tasks: Sequence[str]) -> list[TaskStacks]:
    answers = {name: TaskStacks(name) for name in tasks}
    logs = {name: Tail(run.log_file(generation, name)) for name in tasks}
    for log in logs.values():
        log.skip()
    ask(run, {"ask": "stacks"})

    def all_have_answered() -> bool:
        for name, answer in answers.items():
            for line in [] if answer.is_complete else logs[name].lines():
                if not answer.is_complete:
                    answer.hear(line.partition(b" ")[2].decode(errors="replace"))
        return all(answer.is_complete for answer in answers.values())

    with suppress(TimeoutError):  # each task without an answer is reported
        wait_for(all_have_answered, "answer from every task", _PATIENCE, every=_POLL)
    for answer in answers.values():
        if answer.state == "begun":
            answer.state = "no answer"
    return list(answers.values())


def _print(answer: TaskStacks) -> None:
    if answer.state in ("shown", "no answer"):
        say(answer.task, bold=True, nl=answer.state == "shown")
        if answer.state == "no answer":
            say(f" did not answer within {_PATIENCE:g} s")
        for line in answer.stack:
            say(f"  {line}")
    else:
        say(answer.task, bold=True, nl=False)
        say(f" {stack_dump.STOPPED if answer.state == 'stopped' else stack_dump.NO_PYTHON}")
