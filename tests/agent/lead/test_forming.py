"""When a generation forms, and of whom. No process is involved."""

from __future__ import annotations

from dataclasses import replace

from tests.support.conducted import SPEC, Conducted
from tests.support.conducted_messages import fields, spare


def test_no_gang_forms_while_an_agent_is_cut_off() -> None:
    run = Conducted().into("gathering")
    run.join("machine-2")
    run.conductor.leave(run.agents["machine-2"], "closed")
    run.status("machine-1", ready=True)
    assert run.phase == "gathering"
    run.loop.passes("loss of machine-2")
    assert run.phase == "running"


def test_no_gang_forms_once_another_agent_leads() -> None:
    run = Conducted().into("gathering")
    run.leader.leads = False
    run.status("machine-1", ready=True)
    assert (run.phase, run.leader.fences) == ("gathering", [])


def test_a_generation_is_later_than_any_that_an_agent_remembers() -> None:
    run = Conducted().into("gathering")
    run.status("machine-0", generation=7)
    run.status("machine-1", generation=10**7, ready=True)  # not credible
    assert (run.machine.number, run.leader.fences) == (8, [8])


def test_checkpoints_that_could_not_be_fenced_are_noted() -> None:
    run = Conducted().into("gathering")
    run.leader.checkpoints.held, run.leader.trouble = ["step-1"], "/checkpoints: read-only"
    run.status("machine-1", ready=True)
    assert fields(run, "note")["text"] == "could not fence off older generations in /checkpoints: read-only"


ELASTIC = replace(SPEC, sizes={"worker": 3}, least={"worker": 2}, machines=3)


def test_an_elastic_gang_waits_a_moment_for_more_and_grows_when_they_come() -> None:
    run = Conducted(ELASTIC).into("gathering")
    run.status("machine-1", ready=True)
    assert run.phase == "gathering"
    run.loop.passes("more agents")
    assert (run.phase, len(run.machine.generation.tasks)) == ("running", 2)
    spare(run)
    assert (run.phase, run.machine.generation.blame) == ("clearing", "more machines have joined")


def test_an_elastic_gang_forms_at_once_when_it_is_complete() -> None:
    run = Conducted(ELASTIC).into("gathering")
    run.status("machine-1", ready=True)
    spare(run)
    assert (run.phase, run.loop.expects("more agents")) == ("running", False)
    run.machine._form_smaller()  # too late
    assert run.machine.number == 1


def test_a_larger_gang_forms_when_there_is_room_for_it() -> None:
    run = Conducted().into("running")
    assert run.ask(ask="scale", workers=3) == {"ok": True, "tasks": 3, "generation": 1}
    assert run.phase == "running"
    spare(run)
    assert run.phase == "clearing"
    assert run.ask(ask="scale", workers=2) == {"ok": True, "tasks": 2, "generation": 2}


def test_questions_that_are_refused() -> None:
    run = Conducted().into("stopping")
    assert run.ask(ask="scale", workers=1) == {"ok": False, "why": "the run is ending"}
    assert not run.ask(ask="scale", workers=1000)["ok"]
    assert run.ask(ask="weather") == {"ok": False, "why": "no such question: weather"}
    assert not Conducted().into("running").ask(ask="scale", workers=1000)["ok"]
