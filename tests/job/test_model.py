"""The job: what may be written, what each mistake is told, the way back to data, and the schema."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import random
import sys
from typing import Any

import jsonschema
import msgspec
import pytest

from oarlock.errors import JobError
from oarlock.job.model import (
    Duration,
    Job,
    Kubernetes,
    Limits,
    Replicas,
    Role,
    Roles,
    Size,
    Storage,
    Volume,
    parse,
    schema,
    slug,
    to_data,
)

PROGRAM = {"program": "train.py"}

EVERYTHING: dict[str, Any] = {
    "name": "mnist",
    "program": "train.py",
    "args": ["--epochs", 3, "--lr", 0.5, True, False],
    "env": {"LR": 0.001, "DEBUG": True, "TEXT": "a b", "UNSET": None},
    "framework": "torch",
    "roles": {
        "chief": 1,
        "worker": {"replicas": "2..8", "processes": 2, "cpu": "500m", "memory": "4Gi", "gpu": 2},
        "ps": 2,
        "evaluator": 1,
    },
    "ingest": {
        "program": "ingest.py",
        "args": "--size 28",
        "env": {"LOCALE": "pt_BR"},
        "pip": "pillow",
        "memory": "8Gi",
        "sources": {
            "train.csv": "https://example.com/train.csv",
            "images/all": {"url": "s3://bucket/images", "sha256": "0" * 64},
        },
    },
    "evaluate": {"module": "package.evaluate", "cpu": 2, "image": "python:3.11"},
    "serve": {
        "replicas": "1..4",
        "batching": {"max_rows": 8, "queue": "0.5s"},
        "predict": "predict.py",
        "when": "accuracy >= 0.95",
    },
    "storage": {
        "data": "data",
        "eval": "eval",
        "checkpoints": "saved",
        "model": "s3://bucket/run",
        "logs": "logs",
        "snapshots": "gs://bucket/runs",
    },
    "limits": {"restarts": 5, "stall": "none", "runtime": "1h30m", "rendezvous": 60, "grace": "10s"},
    "warm": False,
    "network": "private",
    "seed": 7,
    "pip": ["numpy>=2; python_version < '3.12'", "torch"],
    "kubernetes": {
        "image": "python:3.11",
        "user": "image",
        "labels": {"team": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "claim": {"size": "5Gi"},
        "volumes": {"data": {"path": "/data", "claim": "images"}},
        "secrets": {"token": {"env": {"TOKEN": "token"}, "roles": ["worker"]}, "files": "/files"},
        "pod": {"nodes": [1, None, {"a": True}], "share": 0.5},
    },
}

VALID: list[dict[str, Any]] = [
    PROGRAM,
    EVERYTHING,
    {"module": "package.train"},
    {"command": ["sh", "-c", "echo $RANK", 1]},
    {"command": "echo 'two words'", "args": "--more 'of them'"},
    {**PROGRAM, "roles": {"worker": "2..8"}},
    {**PROGRAM, "roles": {"worker": None, "chief": {}}},
    {**PROGRAM, "roles": {"evaluator": 1}},
    {**PROGRAM, "module": None, "name": None, "args": None, "env": None, "roles": None, "framework": None},
    {**PROGRAM, "limits": {"stall": 0.5 + 1, "grace": 0, "runtime": "NONE"}, "seed": None, "warm": None},
    {**PROGRAM, "roles": {"worker": {"memory": 2_000_000, "cpu": 0.5, "replicas": "3"}}},
    {**PROGRAM, "pip": "numpy 'torch >= 2'"},
    {**PROGRAM, "roles": {"worker": [{"replicas": "2..4", "gpu": 1, "image": "x"}, 3, {"cpu": 2}]}},
    {**PROGRAM, "roles": {"chief": [{"cpu": 2}], "worker": {"groups": [{"processes": 2}]}}},
]


def test_a_program_alone_is_a_job_with_sensible_defaults() -> None:
    assert parse(PROGRAM) == Job(
        name="train",
        program="train.py",
        framework="auto",
        roles=Roles(worker=Role(Replicas(1), processes=1, cpu=1.0, memory=Size(2 * 1024**3), gpu=None)),
        storage=Storage(),
        limits=Limits(
            restarts=3, stall=Duration(600), runtime=None, rendezvous=Duration(300), grace=Duration(30)
        ),
        warm=True,
        network="shared",
        seed=None,
    )


def test_every_field_is_read() -> None:
    job = parse(EVERYTHING)
    assert job.args == ("--epochs", "3", "--lr", "0.5", "true", "false")
    assert job.env == {"LR": "0.001", "DEBUG": "true", "TEXT": "a b"}
    assert job.roles.worker == Role(Replicas(2, 8), processes=2, cpu=0.5, memory=Size(4 * 1024**3), gpu=2)
    assert (job.roles.chief, job.roles.ps) == (Role(), Role(Replicas(2)))
    assert (job.storage.model, job.storage.snapshots) == ("s3://bucket/run", "gs://bucket/runs")
    assert job.limits == Limits(
        restarts=5, stall=None, runtime=Duration(5400), rendezvous=Duration(60), grace=Duration(10)
    )
    assert (job.warm, job.network, job.seed, job.framework) == (False, "private", 7, "torch")
    assert job.pip == ("numpy>=2; python_version < '3.12'", "torch")
    assert job.kubernetes == Kubernetes(**EVERYTHING["kubernetes"])
    assert job.kubernetes.volumes == {"data": Volume(path="/data", claim="images")}


def test_imports_may_be_kept_for_a_while() -> None:
    job = parse({**PROGRAM, "warm": "1h30m"})
    assert job.warm == Duration(5400)
    assert parse(to_data(job)) == job


def test_a_role_may_be_a_list_of_groups() -> None:
    gpus, cpus = {"replicas": 2, "gpu": 4}, {"replicas": "1..4", "cpu": 3}
    groups = [{**gpus, "processes": 2}, {**cpus, "processes": 2}]
    job = parse({**PROGRAM, "roles": {"worker": groups}})
    worker = job.roles.worker
    assert worker is not None
    assert (worker.replicas, worker.processes) == (Replicas(3, 6), 2)
    assert (worker.gpu, worker.cpu, worker.image) == (None, 1.0, None)
    assert [part.gpus_each for part in worker.parts] == [2, None]
    assert worker.parts == worker.groups
    assert worker.parts == (
        Role(Replicas(2), gpu=4, processes=2),
        Role(Replicas(1, 4), cpu=3.0, processes=2),
    )
    assert to_data(job)["roles"] == {
        "worker": [
            {"replicas": 2, "processes": 2, "gpu": 4},
            {"replicas": "1..4", "processes": 2, "cpu": 3.0},
        ]
    }
    assert msgspec.structs.replace(worker) == worker


def test_groups_may_have_different_numbers_of_processes() -> None:
    written = [{"replicas": 2, "gpu": 8, "processes": 8}, {"gpu": 1}]
    worker = parse({**PROGRAM, "roles": {"worker": written}}).roles.worker
    assert worker is not None
    assert (worker.replicas, worker.tasks(), worker.members) == (Replicas(3), 17, (8, 8, 1))


def test_a_role_without_groups_has_one_part() -> None:
    role = Role(Replicas(3), gpu=1)
    assert (role.groups, role.parts) == ((), (role,))


def test_python_may_write_what_a_file_may() -> None:
    written: dict[str, Any] = {"roles": {"worker": "2..4"}, "limits": Limits(stall="5m")}  # type: ignore[arg-type]
    job = Job(program="train.py", **written)
    assert job == parse({**PROGRAM, "roles": {"worker": "2..4"}, "limits": {"stall": "5m"}})


def test_none_means_not_given_in_python_too_except_where_it_means_no_limit() -> None:
    nothing: dict[str, Any] = dict.fromkeys(("name", "args", "env", "roles", "limits", "warm", "seed"))
    assert Job(program="train.py", **nothing) == parse(PROGRAM)
    assert Limits(stall=None).stall is None


def test_python_is_told_the_same_as_a_file() -> None:
    with pytest.raises(JobError, match=r"^restarts: expected a whole number, found \"many\"$"):
        Limits(restarts="many")  # type: ignore[arg-type]
    with pytest.raises(JobError, match=r"^seed: expected 0 or more, found -4$"):
        msgspec.structs.replace(parse(PROGRAM), seed=-4)


def test_a_master_is_a_chief() -> None:
    said = r"^chief_name: it names the chief, and there is none; add roles.chief: 1$"
    with pytest.raises(JobError, match=said):
        parse({**PROGRAM, "chief_name": "master"})
    assert parse({**PROGRAM, "chief_name": "master", "roles": {"chief": 1}}).chief_name == "master"


def test_a_job_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        parse(PROGRAM).seed = 1  # type: ignore[misc]


NAME = "expected lower-case letters, digits and '-', starting with a letter, at most 35 characters"
FIELDS = (
    "name, program, module, command, args, pip, env, framework, roles, ingest, evaluate, serve, storage, "
    "limits, warm, observe, chief_name, network, seed and kubernetes"
)
ROLE = "expected replicas, processes, cpu, memory, gpu, image, node_selector, tolerations and groups"

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

MISTAKES: list[tuple[dict[Any, Any], str]] = [
    # names of fields
    ({"programm": "a.py"}, "programm: no such field; did you mean program?"),
    ({"prog": "a.py"}, "prog: no such field; did you mean program?"),
    ({"roles": {"wroker": 1}}, "roles.wroker: no such field; did you mean worker?"),
    ({"limits": {"restart": 1}}, "limits.restart: no such field; did you mean restarts?"),
    ({"Limits": {}}, "Limits: no such field; did you mean limits?"),
    ({"restarts": 1}, "restarts: no such field; did you mean limits.restarts?"),
    ({"workers": 4}, "workers: no such field; did you mean roles.worker?"),
    ({"zzz": 1}, f"zzz: no such field; there is {FIELDS}"),
    ({"roles": {"master": 1}}, "roles.master: no such field; there is chief, worker, ps and evaluator"),
    ({1: 2}, f"1: no such field; there is {FIELDS}"),
    (
        {"ingest": "a.py", "storage": {"data": "s3://bucket/data"}},
        "storage.data: an ingest writes to a folder; remove it, or name a folder",
    ),
    (
        {"evaluate": {"program": "a.py", "cpu": 2}, "roles": {"worker": 1, "evaluator": {"cpu": 4}}},
        "evaluate: roles.evaluator says what its machine needs; say it in one of them",
    ),
    ({"ingest": {}}, "ingest: there is nothing to run; give one of program, module and command"),
    (
        {"ingest": {"program": "a.py", "module": "a"}},
        "ingest.module: program is given too; give exactly one of them",
    ),
    (
        {"evaluate": {"args": "-v"}},
        "evaluate: there is nothing to run; give one of program, module and command",
    ),
    (
        {"ingest": {"sources": {"../up": "a.csv"}}},
        'ingest.sources.../up: expected a path below the data folder such as train.csv, found "../up"',
    ),
    # kinds of values
    ({"limits": {"restarts": "many"}}, 'limits.restarts: expected a whole number, found "many"'),
    ({"limits": {"restarts": 1.5}}, "limits.restarts: expected a whole number, found 1.5"),
    ({"limits": {"restarts": True}}, "limits.restarts: expected a whole number, found true"),
    ({"limits": {"restarts": False}}, "limits.restarts: expected a whole number, found false"),
    ({"limits": {"restarts": {"a": 1}}}, "limits.restarts: expected a whole number, found a mapping"),
    ({"limits": {"restarts": {}}}, "limits.restarts: expected a whole number, found an empty mapping"),
    ({"limits": {"restarts": -1}}, "limits.restarts: expected 0 or more, found -1"),
    (
        {"limits": 3},
        "limits: expected restarts, stall, runtime, rendezvous, grace, evaluate and logs, found 3",
    ),
    ({"roles": ["worker"]}, "roles: expected chief, worker, ps and evaluator, found a list"),
    ({"roles": {"worker": []}}, "roles.worker: expected a list of one group or more, found an empty list"),
    ({"roles": {"worker": [1, [2]]}}, f"roles.worker.1: {ROLE}, found a list"),
    ({"roles": {"worker": ()}}, "roles.worker: expected a list of one group or more, found an empty list"),
    ({"roles": {"worker": ENDLESS}}, f"roles.worker.0: {ROLE}, found a list"),
    ({"roles": {"worker": [1, None]}}, f"roles.worker.1: {ROLE}, found nothing"),
    ({"roles": {"worker": [{"gpus": 2}]}}, "roles.worker.0.gpus: no such field; did you mean gpu?"),
    (
        {"roles": {"worker": {"groups": [1, {"gpu": "a"}]}}},
        'roles.worker.groups.1.gpu: expected a whole number, found "a"',
    ),
    (
        {"limits": {"stall": "soon"}},
        'limits.stall: expected a duration such as 90s, 10m or 1h30m, found "soon"',
    ),
    ({"limits": {"stall": 0}}, "limits.stall: expected 1s or more, found 0; write none for no limit"),
    (
        {"limits": {"rendezvous": "none"}},
        'limits.rendezvous: expected a duration such as 90s, 10m or 1h30m, found "none"',
    ),
    ({"limits": {"rendezvous": 0}}, "limits.rendezvous: expected 1s or more, found 0"),
    ({"limits": {"grace": -1}}, "limits.grace: expected a duration between 0 and 3650d, found -1"),
    ({"warm": "yes"}, 'warm: expected true, false or a duration such as 90s, 10m or 1h30m, found "yes"'),
    ({"warm": 0}, "warm: expected true, false or a duration such as 90s, 10m or 1h30m, found 0"),
    ({"network": "none"}, 'network: expected shared or private, found "none"'),
    ({"chief_name": "boss"}, 'chief_name: expected chief or master, found "boss"'),
    ({"seed": -1}, "seed: expected 0 or more, found -1"),
    ({"seed": 2**32}, "seed: expected at most 4294967295, found 4294967296"),
    (
        {"framework": "pytorch"},
        'framework: expected auto, tensorflow, torch, jax or none, found "pytorch"; did you mean torch?',
    ),
    ({"framework": 3}, "framework: expected auto, tensorflow, torch, jax or none, found 3"),
    ({"storage": {"data": 3}}, "storage.data: expected a folder or a URL, found 3"),
    ({"storage": {"data": ""}}, 'storage.data: expected a folder or a URL, found ""'),
    (
        {"storage": {"snapshots": "s3://bucket", "checkpoints": "s3://other"}},
        "storage.snapshots: snapshots copy a folder, and checkpoints is a URL",
    ),
    (
        {"storage": {"snapshots": "ftp://bucket"}},
        "storage.snapshots: expected a folder, or a URL such as s3://bucket/folder (s3, gs or az), "
        'found "ftp://bucket"',
    ),
    (
        {"storage": {"snapshots": "s3://"}},
        "storage.snapshots: expected a folder, or a URL such as s3://bucket/folder (s3, gs or az), "
        'found "s3://"',
    ),
    (
        {"storage": {"snapshots": "s3://key:sesame@bucket/folder"}},
        "storage.snapshots: a URL here holds no credentials; they are taken from the environment",
    ),
    (
        {"storage": {"snapshots": "az://container/folder?sig=sesame"}},
        "storage.snapshots: a URL here holds no credentials; they are taken from the environment",
    ),
    ({"args": 3}, "args: expected a list of arguments or one line, found 3"),
    ({"args": ["a", {"b": 1}]}, "args: expected text or a number as word 2, found a mapping"),
    ({"args": ["a", None]}, "args: expected text or a number as word 2, found nothing"),
    ({"args": ["a\0"]}, 'args: expected text or a number as word 1, found "a\\x00"'),
    (
        {"args": "it's"},
        'args: expected a list of arguments or one line, found "it\'s"; a quotation mark is not closed',
    ),
    ({"kubernetes": {"pod": []}}, "kubernetes.pod: expected a mapping, found an empty list"),
    ({"kubernetes": {"pod": {1: 2}}}, "kubernetes.pod.1: expected a name"),
    ({"kubernetes": {"pod": {"a": {"b": [0, {2: 2}]}}}}, "kubernetes.pod.a.b.1.2: expected a name"),
    (
        {"kubernetes": {"pod": {"a": [b"x"]}}},
        "kubernetes.pod.a.0: expected text, a number, a list or a mapping, found a bytes",
    ),
    (
        {"kubernetes": {"pod": {"a": float("nan")}}},
        "kubernetes.pod.a: expected text, a number, a list or a mapping, found nan",
    ),
    (
        {"kubernetes": {"pod": {"a": "\ud800"}}},
        'kubernetes.pod.a: expected text, a number, a list or a mapping, found "\\ud800"',
    ),
    ({"kubernetes": {"pod": {"a": ENDLESS}}}, "kubernetes.pod.a" + ".0" * 51 + ": nested too deeply"),
    # roles
    ({"roles": {"worker": 0}}, "roles.worker.replicas: expected 1 or more, found 0"),
    ({"roles": {"worker": "8..2"}}, "roles.worker.replicas: min is larger than max in 8..2"),
    (
        {"roles": {"worker": "many"}},
        'roles.worker.replicas: expected a whole number or min..max, such as 4 or 2..8, found "many"',
    ),
    ({"roles": {"worker": {"processes": 0}}}, "roles.worker.processes: expected 1 or more, found 0"),
    ({"roles": {"worker": {"gpu": -1}}}, "roles.worker.gpu: expected 0 or more, found -1"),
    (
        {"roles": {"worker": {"gpu": 3, "processes": 2}}},
        "roles.worker.gpu: expected 0 or a multiple of processes (2), found 3",
    ),
    ({"roles": {"worker": {"cpu": 0}}}, "roles.worker.cpu: expected between 0.001 and 10000 cores, found 0"),
    (
        {"roles": {"worker": {"cpu": "two"}}},
        'roles.worker.cpu: expected a number of cores such as 2, 0.5 or 500m, found "two"',
    ),
    (
        {"roles": {"worker": {"memory": "4gb"}}},
        'roles.worker.memory: expected a size such as 4Gi, 512Mi or 2G, found "4gb"; did you mean 4G?',
    ),
    ({"roles": {"chief": 2}}, "roles.chief.replicas: there can be only one chief, found 2"),
    ({"roles": {"chief": "1..2"}}, "roles.chief.replicas: there can be only one chief, found 1..2"),
    (
        {"roles": {"worker": 1, "evaluator": 2}},
        "roles.evaluator.replicas: there can be only one evaluator, found 2",
    ),
    ({"roles": {"worker": 1, "ps": "1..2"}}, "roles.ps.replicas: expected a fixed number, found 1..2"),
    ({"roles": {"ps": 1}}, "roles.ps: parameter servers need at least one worker; add worker"),
    ({"roles": {"ps": 1, "chief": 1}}, "roles.ps: parameter servers need at least one worker; add worker"),
    ({"roles": {}}, "roles: there is neither a chief nor a worker; add worker"),
    (
        {"roles": {"worker": [{"processes": 2}, {"processes": 2, "replicas": "1..2"}, 1]}},
        "roles.worker.1.replicas: groups with different numbers of processes have a fixed number of members, "
        "found 1..2",
    ),
    (
        {"roles": {"worker": {"groups": [2, 1], "cpu": 3}}},
        "roles.worker.cpu: the role is a list of groups; give it in each group",
    ),
    (
        {"roles": {"worker": {"groups": [2, 1], "replicas": 4}}},
        "roles.worker.replicas: the role is a list of groups; give it in each group",
    ),
    (
        {"roles": {"worker": [1, {"groups": [2]}]}},
        "roles.worker.1: a group has no groups of its own",
    ),
    (
        {"roles": {"worker": [100_000, 1]}},
        "roles.worker: together: expected at most 100000, found 100001",
    ),
    ({"roles": {"chief": [1, 1]}}, "roles.chief.replicas: there can be only one chief, found 2"),
    (
        {"roles": {"worker": 1, "evaluator": [{"cpu": 1}, 2]}},
        "roles.evaluator.replicas: there can be only one evaluator, found 3",
    ),
    # packages
    ({"pip": 3}, "pip: expected packages as a list or one line, found 3"),
    ({"pip": ["numpy", None]}, "pip: expected text or a number as word 2, found nothing"),
    (
        {"pip": "numpy >= 2"},
        'pip: expected a package as pip takes it, such as numpy>=2, found ">="; '
        "one with spaces is an item of a list",
    ),
    (
        {"pip": "numpy>=2; python_version<'3.12'"},
        'pip: expected a package as pip takes it, such as numpy>=2, found "numpy>=2;"; '
        "one with spaces is an item of a list",
    ),
    # what to run
    ({"program": None}, "there is nothing to run; give one of program, module and command"),
    ({"module": "train"}, "module: program is given too; give exactly one of them"),
    ({"command": "train"}, "command: program is given too; give exactly one of them"),
    ({"program": ""}, 'program: expected the path of a Python program, found ""'),
    (
        {"program": None, "module": "train.py"},
        'module: expected the name of a module such as package.train, found "train.py"; '
        "for a file use program",
    ),
    (
        {"program": None, "module": "my-module"},
        'module: expected the name of a module such as package.train, found "my-module"',
    ),
    (
        {"program": None, "command": []},
        "command: expected a command as a list of words or one line, found an empty list",
    ),
    (
        {"program": None, "command": ""},
        'command: expected a command as a list of words or one line, found ""',
    ),
    (
        {"program": None, "command": "a && b"},
        'command: expected a command as a list of words or one line, found "a && b"; '
        'no shell runs it, so && would be an argument; use ["sh", "-c", ...]',
    ),
    # names and variables
    ({"name": "My Job"}, f'name: {NAME}, found "My Job"; try my-job'),
    ({"name": "a" * 36}, f'name: {NAME}, found "{"a" * 36}"; try {"a" * 35}'),
    ({"name": "Café"}, f'name: {NAME}, found "Café"; try caf'),
    ({"name": "a-"}, f'name: {NAME}, found "a-"; try a'),
    ({"name": "7up"}, f'name: {NAME}, found "7up"; try job-7up'),
    ({"name": ""}, f'name: {NAME}, found ""'),
    ({"name": 7}, f"name: {NAME}, found 7"),
    ({"name": "a\n"}, f'name: {NAME}, found "a\\n"; try a'),
    ({"env": ["A=1"]}, "env: expected names and values, found a list"),
    ({"env": {"A B": 1}}, "env.A B: not a name for an environment variable"),
    ({"env": {1: 1}}, "env.1: not a name for an environment variable"),
    ({"env": {"A": [1]}}, "env.A: expected text or a number, found a list"),
    ({"env": {"A": "\ud800"}}, 'env.A: expected text or a number, found "\\ud800"'),
    ({"env": {"RANK": 1}}, "env.RANK: Oarlock sets it for each task; leave it out"),
    ({"env": {"OARLOCK_RUN": 1}}, "env.OARLOCK_RUN: Oarlock sets it for each task; leave it out"),
    ({"env": {"MODEL_DIR": "m"}}, "env.MODEL_DIR: Oarlock sets it; use storage.model"),
]


@pytest.mark.parametrize(("written", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES])
def test_a_mistake_is_told_in_one_line(written: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as refused:
        parse({**PROGRAM, **written})
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "name",
    [
        "TF_CONFIG",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CLUSTER_CONFIG",
        "POD_NAME",
    ],
)
def test_what_oarlock_tells_each_task_cannot_be_set_for_all(name: str) -> None:
    with pytest.raises(JobError, match=f"^env.{name}: Oarlock sets it"):
        parse({**PROGRAM, "env": {name: "x"}})


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ({"program": "src/My Train_v2.py"}, "my-train-v2"),
        ({"module": "package.train_all"}, "train-all"),
        ({"command": ["/usr/bin/env", "x"]}, "env"),
        ({"program": "3d.py"}, "job-3d"),
        ({"program": "ü.py"}, "job"),
        ({"program": "a" * 80 + ".py"}, "a" * 35),
    ],
)
def test_a_job_without_a_name_is_called_after_what_it_runs(written: dict[str, Any], name: str) -> None:
    assert parse(written).name == name == slug(name)


@pytest.mark.parametrize("written", VALID)
@pytest.mark.parametrize("full", [False, True])
def test_data_of_a_job_makes_the_same_job(written: dict[str, Any], full: bool) -> None:
    job = parse(written)
    assert parse(to_data(job, full=full)) == job
    assert to_data(parse(to_data(job, full=full)), full=full) == to_data(job, full=full)
    assert _is_plain(to_data(job, full=full))


def _is_plain(data: Any) -> bool:
    if type(data) is dict:
        return all(type(name) is str and _is_plain(item) for name, item in data.items())
    if type(data) is list:
        return all(map(_is_plain, data))
    return data is None or type(data) in (str, int, float, bool)


def test_data_of_a_job_is_its_own() -> None:
    job = parse(EVERYTHING)
    to_data(job)["kubernetes"]["pod"]["nodes"].append(7)
    assert job.kubernetes.pod == EVERYTHING["kubernetes"]["pod"]


def test_data_of_a_job_says_what_differs_from_the_defaults() -> None:
    job = parse(
        {**PROGRAM, "roles": {"worker": {"replicas": 4}, "chief": {"gpu": 1}}, "limits": {"stall": "none"}}
    )
    assert to_data(job) == {
        "name": "train",
        "program": "train.py",
        "roles": {"chief": {"gpu": 1}, "worker": 4},
        "limits": {"stall": "none"},
    }


validator = jsonschema.Draft202012Validator(schema())


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("written", VALID)
def test_the_schema_accepts_what_a_job_accepts(written: dict[str, Any]) -> None:
    validator.validate(written)


# What only the reader can know: how fields go together, and what text means.
BEYOND_A_SCHEMA = [
    "an ingest writes to a folder",
    "say it in one of them",
    "ingest: there is nothing to run",
    "ingest.module: program is given too",
    "evaluate: there is nothing to run",
    "min is larger",
    "only one",
    "fixed number",
    "need at least",
    "neither a chief",
    "Oarlock sets it",
]
BEYOND_A_SCHEMA += ["quotation mark", "no shell", "x00", "ud800", "\\n", "kubernetes.pod."]
BEYOND_A_SCHEMA += ["multiple of processes", "list of groups", "of its own", "together", "as pip takes it"]
BEYOND_A_SCHEMA += ["copy a folder"]


@pytest.mark.parametrize(
    "written",
    [
        {**PROGRAM, **written}
        for written, message in MISTAKES
        if not any(part in message for part in BEYOND_A_SCHEMA)
        and all(isinstance(name, str) for name in written)
        and written != {"roles": {"worker": ENDLESS}}
    ],
)
def test_the_schema_refuses_what_a_job_refuses(written: dict[str, Any]) -> None:
    assert not validator.is_valid(_as_json(written))


def _as_json(value: Any) -> Any:
    """Python's own freedoms taken out: keys are text and lists are lists."""
    if isinstance(value, dict):
        return {str(name): _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, (list, tuple)) else value


def test_the_schema_describes_every_field() -> None:
    objects = [schema(), *schema()["$defs"].values()]
    assert [description["title"] for description in objects] == [
        *("Job", "Roles", "Role", "Toleration", "Ingest", "Source", "Evaluate", "Serve", "Batching"),
        *("Storage", "Limits", "Kubernetes", "Claim", "Volume", "SecretUse"),
    ]
    for description in objects:
        assert description["additionalProperties"] is False
        for name, field in description["properties"].items():
            assert field["title"], name
            assert field["description"].endswith("."), name


def test_whatever_is_changed_in_a_job_only_a_job_error_comes_of_it() -> None:
    draw = random.Random(3)
    refused = 0
    for _ in range(3000):
        written = copy.deepcopy(EVERYTHING)
        for _ in range(draw.randrange(1, 4)):
            _mutate(written, draw)
        outcome = _outcome(written)
        if isinstance(outcome, str):
            refused += 1
            assert "\n" not in outcome
            assert outcome.encode()
        else:
            assert parse(to_data(outcome)) == outcome
            validator.validate(_as_json(written))
    assert 1000 < refused < 3000


def _outcome(written: dict[str, Any]) -> Job | str:
    try:
        return parse(written)
    except JobError as problem:
        return str(problem)


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    3,
    2**70,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "none",
    "2..8",
    "10m",
    "4Gi",
]
ODD += [
    "a\nb",
    "\0",
    "\ud800",
    "x" * 300,
    [],
    [1],
    ["a", ["b"]],
    {},
    {"a": 1},
    {"replicas": 2},
    {1: 2},
    (),
    b"x",
]


def _mutate(data: dict[Any, Any], draw: random.Random) -> None:
    name = draw.choice([*data, "new"])
    inner = data.get(name)
    if isinstance(inner, dict) and inner and draw.random() < 0.7:
        _mutate(inner, draw)
    elif isinstance(inner, list) and inner and isinstance(inner[0], dict) and draw.random() < 0.7:
        _mutate(inner[0], draw)
    elif draw.random() < 0.3:
        data.pop(name, None)
    elif draw.random() < 0.2:
        data[draw.choice(["programm", "", "a.b", 5, "worker", None, True])] = draw.choice(ODD)
    else:
        data[name] = copy.deepcopy(draw.choice(ODD))


@pytest.mark.parametrize(
    "module",
    [
        "job.model",
        "job.roles",
        "job.volumes",
        "job.kubernetes_section",
        "quantities",
        "job.parsing.fields",
        "job.parsing.kinds",
        "job.parsing.compound_kinds",
        "job.parsing.overrides",
        "job.parsing.json_schema",
        "wording",
    ],
)
def test_the_job_is_pure(module: str) -> None:
    """No file, process or network is within reach of these modules."""
    tree = ast.parse(inspect.getsource(importlib.import_module(f"oarlock.{module}")))
    imported = [
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
    ]
    assert not {"os", "io", "pathlib", "subprocess", "socket", "shutil"} & set(imported)
    assert all(
        str(name).partition(".")[0] in {"oarlock", "msgspec", *sys.stdlib_module_names} for name in imported
    )
    assert not any(isinstance(node, ast.Name) and node.id == "open" for node in ast.walk(tree))
