"""The interface of engines: a third one is a class and one line, and both real ones have all of it."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import oarlock
from oarlock.agent.protocol.spec import Program, Spec
from oarlock.cli.group import Verbs
from oarlock.cli.verbs import doctor, plan
from oarlock.cli.verbs import run as run_verb
from oarlock.engines.engine import Engine, engine_called, engine_of
from oarlock.engines.known_engines import ENGINES, Listed, Traits, traits_of
from oarlock.engines.kubernetes.deployments.serving_engine import ServingEngine
from oarlock.engines.kubernetes.kubernetes_engine import KubernetesEngine
from oarlock.engines.local.local_engine import LocalEngine
from oarlock.errors import JobError, OarlockError
from oarlock.job import job_file
from oarlock.job.job_file import JobFile
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.folders import write

REAL = (LocalEngine, KubernetesEngine, ServingEngine)


class PaperEngine(Engine):
    """Runs that exist only on paper: each says hello, and runs until it is stopped."""

    name = "paper"

    def start(self, jobfile: JobFile, name: str | None = None, **options: Any) -> RunFolder:
        def fill(draft: RunFolder) -> None:
            folders = dict.fromkeys(("checkpoints", "logs"), "/paper")
            spec = Spec(draft.name, "", "", Program("program", "train.py"), {"worker": 1}, folders)
            draft.job_file.write_text(f"name: {jobfile.job.name}\n")
            draft.spec_file.write_text(spec.to_json())
            write(draft.path, "logs/1/worker-0.log", text="2026-01-01T00:00:00.000000Z hello\n")
            tell(draft, "run", job=jobfile.job.name, engine=self.name, tasks=["worker-0"])
            tell(draft, "generation", generation=1, tasks=["worker-0"])
            tell(draft, "task", task="worker-0", state="started")

        return runs.create(jobfile.job.name, fill, name)

    def plan(self, jobfile: JobFile, name: str) -> dict[str, Any]:
        return {"run": name, "objects": ["a sheet"], "ok": name != "large"}

    def resume(self, run: RunFolder, *, stdin: int | None = None) -> None:
        tell(run, "agent")

    def cancel(self, run: RunFolder, *, now: bool = False) -> None:
        tell(run, "end", state="stopped", code=130, reason="killed" if now else "stopped by the user")

    def ask(self, run: RunFolder, question: Mapping[str, Any]) -> dict[str, Any]:
        return {"ok": False, "why": "paper is patient"}

    def delete(self, chosen: Collection[RunFolder], *, now: bool, volumes: bool) -> list[str]:
        return []

    def refresh(self, run: RunFolder, *, with_logs: bool = False) -> None:
        pass

    @contextmanager
    def following(self, run: RunFolder) -> Iterator[Callable[[], bool]]:
        yield run.is_running


PAPER = Listed(
    f"{__name__}:{PaperEngine.__name__}", Traits(plans=True, interrupt_stops=True, sends_program=False)
)


def tell(run: RunFolder, kind: str, **more: Any) -> None:
    with run.events_file.open("a") as file:
        file.write(json.dumps({"t": time.time(), "kind": kind, **more}) + "\n")


@pytest.fixture
def call(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line, with one more engine: this line is all that it takes."""
    monkeypatch.setitem(ENGINES, "paper", PAPER)
    # The verbs read the table when they are imported, which another test may have done before.
    for verb in (run_verb.verb, plan.verb, doctor.verb):
        on = next(option for option in verb.params if option.name == "on")
        monkeypatch.setattr(on, "type", click.Choice(list(ENGINES)))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return lambda *words: CliRunner().invoke(Verbs(), words, catch_exceptions=False, standalone_mode=False)


def test_the_verbs_work_with_an_engine_that_they_have_never_seen(call: Callable[..., Result]) -> None:
    started = call("run", "--on", "paper", "--detach", "--name", "first", "train.py")
    assert (started.exit_code, started.stdout) == (0, "first\n"), started.output
    run = runs.find("first")
    assert isinstance(engine_of(run), PaperEngine)
    assert traits_of(run) == engine_of(run).traits == PAPER.traits
    assert [(one["run"], one["state"]) for one in json.loads(call("ps", "--json").stdout)] == [
        ("first", "running")
    ]
    assert json.loads(call("status", "--json", "first").stdout)["engine"] == "paper"
    assert call("logs", "first").stdout == "worker-0 | hello\n"
    assert "generation 1: 1 task" in call("events", "first").stdout
    assert call("stop", "first").stdout == "first stopped\n"
    assert "stopped by the user" in call("attach", "first").output
    assert call("run", "--detach", "--resume", "first").stdout == "first\n"
    assert run.is_running()
    with pytest.raises(OarlockError, match="first is running"):
        call("delete", "first")
    assert call("delete", "--force", "first").exit_code == 0
    assert runs.all_runs() == []


def test_it_plans_a_run(call: Callable[..., Result]) -> None:
    planned = call("plan", "--on", "paper", "--name", "first", "train.py")
    assert planned.stdout == "\ncreates\n  a sheet\n", planned.output
    refused = call("plan", "--on", "paper", "--name", "large", "--json", "train.py")
    assert refused.return_value == 1
    assert json.loads(refused.stdout) == {"run": "large", "objects": ["a sheet"], "ok": False}
    assert runs.all_runs() == []


def test_an_engine_without_checks_or_plans_says_so(call: Callable[..., Result], tmp_path: Path) -> None:
    [checked] = json.loads(call("doctor", "--on", "paper", "--json").stdout)["checks"]
    assert checked["detail"] == "cannot tell: the engine paper has no checks"
    jobfile = job_file.load("train.py", cwd=tmp_path)
    with pytest.raises(OarlockError, match="the engine local cannot plan a run"):
        engine_called("local").plan(jobfile, "first")
    with pytest.raises(OarlockError, match="the engine paper cannot render a run"):
        engine_called("paper").render(jobfile, "first")


def test_python_works_with_it_too(call: Callable[..., Result]) -> None:
    run = oarlock.Job("train.py", name="paper").submit(on="paper")
    assert next(run.logs()).text == "hello"
    with pytest.raises(TimeoutError, match="has not ended"):
        run.wait(timeout=0.1)
    run.cancel()
    assert run.wait(timeout=10).state == "stopped"


def test_its_checkpoints_are_out_of_reach_here(call: Callable[..., Result], tmp_path: Path) -> None:
    job = job_file.load("train.py", cwd=tmp_path).job
    for on, place in (("paper", None), ("local", str(runs.home() / "runs" / "local" / "checkpoints"))):
        call("run", "--on", on, "--detach", "--name", on, "train.py")
        assert engine_called("local").checkpoints_for(job, runs.find(on)) == place


@pytest.mark.parametrize("verb", ["tensorboard", "checkpoints", "pull"])
def test_what_it_cannot_do_is_refused_in_a_sentence(call: Callable[..., Result], verb: str) -> None:
    call("run", "--on", "paper", "--detach", "--name", "first", "train.py")
    with pytest.raises(OarlockError, match="first: the engine paper cannot "):
        call(verb, "first")


def test_an_option_of_another_engine_is_refused(call: Callable[..., Result]) -> None:
    with pytest.raises(Exception, match="--machines is for --on local, not for --on paper"):
        call("run", "--on", "paper", "--machines", "2", "train.py")
    with pytest.raises(Exception, match="--stdin is for --on local, not for --on paper"):
        call("run", "--on", "paper", "--stdin", "train.py")


def test_an_engine_that_is_not_here_is_named(home: Path, call: Callable[..., Result]) -> None:
    with pytest.raises(JobError, match="there is no engine called 'moon'; expected 'local' or 'kubernetes'"):
        engine_called("moon")
    call("run", "--on", "paper", "--detach", "--name", "first", "train.py")
    run = runs.find("first")
    run.events_file.write_text(run.events_file.read_text().replace('"paper"', '"moon"'))
    with pytest.raises(OarlockError, match="first: there is no engine called 'moon'"):
        engine_of(run)
    with pytest.raises(OarlockError, match="first: there is no engine called 'moon'"):
        traits_of(run)


@pytest.mark.parametrize("kind", REAL)
def test_both_real_engines_are_engines(kind: type[Engine]) -> None:
    """mypy compares their types; this compares the names and defaults of parameters."""
    assert isinstance(kind(), Engine)
    assert type(engine_called(kind.name)) is kind
    for name, method in inspect.getmembers(Engine, inspect.isfunction):
        if name.startswith("_"):
            continue
        expected, found = inspect.signature(method), inspect.signature(getattr(kind, name))
        assert list(found.parameters) == list(expected.parameters), name
        for key, parameter in expected.parameters.items():
            assert found.parameters[key].kind == parameter.kind, f"{name}({key})"
            has_default = parameter.default is not inspect.Parameter.empty
            assert (found.parameters[key].default is not inspect.Parameter.empty) == has_default, (
                f"{name}({key})"
            )


def test_only_kubernetes_has_every_ability() -> None:
    methods = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")}
    served = {"announced", "scale_server"}  # a run that serves has an engine of its own there
    same = {"stop", "ignores"}  # everywhere
    assert methods - vars(KubernetesEngine).keys() == same | served
    assert served <= vars(ServingEngine).keys()
