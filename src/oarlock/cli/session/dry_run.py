"""`oarlock run --dry-run`: the resolved job, its tasks and the environment of each. Creates nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from oarlock.agent.host import import_env
from oarlock.agent.protocol.spec import Spec
from oarlock.engines.engine import Engine
from oarlock.job.job_file import JobFile
from oarlock.job.model import to_data
from oarlock.program import bundle
from oarlock.records import runs
from oarlock.run import cluster, contract, placeholders
from oarlock.screens import travel_text
from oarlock.screens.output import complain, print_block, print_json, print_table, say


def show(engine: Engine, jobfile: JobFile, name: str | None, machines: int, as_json: bool) -> None:
    """Print the resolved job, its tasks and their environments."""
    packed = bundle.pack(jobfile.folder) if engine.traits.sends_program else None
    record = runs.home() / "runs" / (name or f"{jobfile.job.name}-xxxx")
    tasks = _tasks(engine.spec_for(jobfile, record, machines))
    if as_json:
        source = str(jobfile.source) if jobfile.source else None
        job = to_data(jobfile.job, full=True)
        fields = {"job": job, "folder": str(jobfile.folder), "source": source, "tasks": tasks}
        if packed is not None:
            sent = {"files": len(packed.files), "size": packed.size, "withheld": list(packed.withheld)}
            fields["program"] = sent
        print_json(fields)
        return
    if packed is not None:
        for line in travel_text.lines(jobfile.folder, len(packed.files), packed.size, packed.withheld):
            complain(line)
    say(yaml.safe_dump(to_data(jobfile.job), sort_keys=False), lines=True)
    print_table(("TASK", "RANK"), [(task["name"], _rank(task)) for task in tasks])
    common = dict(set.intersection(*(set(task["env"].items()) for task in tasks)))
    _print_variables("every task", common)
    for task in tasks:
        if task["args"] != list(jobfile.job.args):
            print_block(f"arguments of {task['name']}", [shlex.join(task["args"])])
        _print_variables(task["name"], {k: v for k, v in task["env"].items() if k not in common})


def _tasks(spec: Spec) -> list[dict[str, Any]]:
    tasks = cluster.form(spec.sizes)
    places = _places(spec, tasks)
    gang = contract.Gang(
        run=spec.run,
        generation=1,
        tasks=tasks,
        addresses={task.name: _address(spec, task) for task in tasks},
        max_restarts=spec.limits.restarts,
        seed=spec.seed,
        machines=places,
    )
    common = [_import_time(spec, len(names)) for names in places]
    machine = {name: number for number, names in enumerate(places) for name in names}
    return [
        {
            "name": task.name,
            "role": task.role,
            "index": task.index,
            "rank": task.rank,
            "args": placeholders.fill(spec.program_of(task.role).args, gang, task),
            "env": {
                **common[machine[task.name]],
                **spec.env_of(task.role),
                **contract.environment(gang, task, _folders(spec, task), chief_name=spec.chief_name),
                **spec.gpus.variables(gang, task),
            },
        }
        for task in tasks
    ]


def _address(spec: Spec, task: cluster.Task) -> str:
    """Ports are chosen whenever a generation forms. Without `bind`, machines have addresses of their own."""
    return f"{spec.bind or f'<address of {task.name}>'}:<port of {task.name}>"


def _import_time(spec: Spec, tasks: int) -> dict[str, str]:
    if spec.bind:
        return import_env.import_time(spec, tasks)
    return import_env.elsewhere(spec, f"<its cores, divided by {tasks}>" if tasks > 1 else "<its cores>")


def _places(spec: Spec, tasks: Iterable[cluster.Task]) -> list[list[str]]:
    """Task names by machine: each machine takes as many tasks of a role as it has slots for."""
    slots = [spec.slots_of(machine) for machine in range(spec.machines)] if spec.bind else _seats(spec)
    places: list[list[str]] = [[] for _ in slots]
    for task in tasks:
        machine = next(number for number, left in enumerate(slots) if left.get(task.role))
        slots[machine][task.role] -= 1
        places[machine].append(task.name)
    return places


def _seats(spec: Spec) -> list[dict[str, int]]:
    """The slots of each machine, if every member of a role has its own."""
    found = []
    for role, size in spec.sizes.items():
        same = spec.processes.get(role, 1)
        found += [{role: tasks} for tasks in spec.members.get(role, [same] * (size // same))]
    return found


def _folders(spec: Spec, task: cluster.Task) -> dict[str, str]:
    """A task's folders. Every task but the leader gets scratch space as its model folder."""
    scratch = Path(spec.folder) / "scratch" / task.name / "model"
    return spec.folders if task.is_leader else {**spec.folders, "model": str(scratch)}


def _rank(task: dict[str, Any]) -> str:
    return "-" if task["rank"] is None else str(task["rank"])


def _print_variables(heading: str, variables: dict[str, str]) -> None:
    print_block(heading, [f"{name}={variables[name]}" for name in sorted(variables)])
