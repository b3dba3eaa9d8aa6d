"""Records that are damaged, mutated, or of a later version: every verb answers, other runs are well."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from click.testing import CliRunner

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.cli.group import Verbs
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run.typed import VERSION
from tests.support import odd

# Every verb that looks at a run, in a way that ends by itself.
VERBS = [
    ["ps"],
    ["ps", "--json"],
    ["status", "RUN"],
    ["status", "RUN", "--json"],
    ["logs", "RUN"],
    ["attach", "RUN"],
    ["stacks", "RUN"],
    ["inspect", "RUN", "--", "true"],
    ["exec", "RUN", "--", "true"],
    ["scale", "RUN", "2"],
    ["checkpoints", "RUN"],
    ["chaos", "RUN"],
    ["stop", "RUN"],
    ["events", "RUN"],
    ["events", "RUN", "--json"],
    ["pull", "RUN"],
    ["tensorboard", "RUN"],
    ["run", "--resume", "RUN"],
    ["delete", "RUN"],
]
_ELSEWHERE = ("delete", "run", "exec", "inspect", "tensorboard")  # end the record, or become another process
FILES = ["agent.json", "events.jsonl", "result.json", "job.yaml"]


def copied(finished: Path, home: Path, *names: str) -> list[RunFolder]:
    for name in names:
        shutil.copytree(finished / "runs" / name, home / "runs" / name, symlinks=True)
    return [RunFolder(home / "runs" / name) for name in names]


def rewrite(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def make_later(run: RunFolder) -> None:
    """As a version might write it that has other fields, other kinds of events, and another number."""
    later = VERSION + 8
    rewrite(run.path / "agent.json", version=later, colour="red", limits={"patience": [1]})
    rewrite(run.path / "result.json", version=later, tasks={"worker-0": {"moons": 3}})
    first, *rest = (run.path / "events.jsonl").read_text().splitlines()
    told = [{**json.loads(first), "version": later}, {"t": 1.0, "kind": "eclipse", "moon": {"of": "Mars"}}]
    (run.path / "events.jsonl").write_text("\n".join([*map(json.dumps, told), *rest]) + "\n")
    with (run.path / "job.yaml").open("a") as job:
        job.write("colour: red\n")


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_answers_on_a_record_of_a_later_version(
    words: list[str], oarlock: Any, home: Path, finished: Path
) -> None:
    run, other = copied(finished, home, "bad-run", "good-run")
    make_later(run)
    done = oarlock(*(run.name if word == "RUN" else word for word in words))
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 2), (done.returncode, done.stderr)
    sentence = (
        f"run {run.name} was made by a later Oarlock (record version {VERSION + 8}, this one reads up to"
    )
    assert sentence in done.stderr or words[0] == "inspect", "which is a shell, and reads nothing"
    if words == ["ps"]:
        shown = dict(line.split()[:2] for line in done.stdout.splitlines()[1:])
        assert shown == {"good-run": "succeeded", "bad-run": "failed"}
    if words[:2] == ["run", "--resume"]:
        assert done.returncode == 1
        assert not run.is_held()
    assert other.state().state == "succeeded"


@pytest.mark.parametrize("version", [VERSION, VERSION + 8])
def test_every_verb_answers_on_a_clusters_run_whose_cluster_is_gone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    run = _sent(home, version)
    for words in [words for words in VERBS if words[0] != "attach"]:  # which keeps trying
        done = CliRunner().invoke(Verbs(), [run.name if word == "RUN" else word for word in words])
        answered = done.exception is None or isinstance(
            done.exception, (SystemExit, OarlockError, ClickException)
        )
        assert answered, (words, done.exception)
    assert run.path.exists(), "nobody could ask whether it runs"


def _sent(home: Path, version: int) -> RunFolder:
    folder = home / "runs" / "far"
    folder.mkdir(parents=True)
    places = dict.fromkeys(("data", "checkpoints", "model", "logs"), "/somewhere")
    spec = Spec("far", "/record", "/", Program("program", "train.py"), {"worker": 1}, places)
    event = {"t": 1e9, "kind": "run", "job": "far", "engine": "kubernetes", "tasks": ["worker-0"]}
    place = {"namespace": "ns", "context": "gone", "server": "https://127.0.0.1:1", "version": version}
    (folder / "agent.json").write_text(spec.to_json())
    rewrite(folder / "agent.json", version=version)
    (folder / "cluster.json").write_text(json.dumps(place))
    (folder / "job.yaml").write_text("name: far\nprogram: train.py\n")
    (folder / "events.jsonl").write_text(json.dumps({**event, "version": version}) + "\n")
    return RunFolder(folder)


def test_fields_that_are_unknown_are_ignored_where_the_version_is_ours(home: Path, finished: Path) -> None:
    (run,) = copied(finished, home, "good-run")
    known, spec = run.state(), run.spec()
    rewrite(run.path / "agent.json", colour="red")
    rewrite(run.path / "result.json", colour="red")
    assert (run.state(), run.spec(), run.later()) == (known, spec, None)


def test_a_record_from_before_there_were_versions_is_read(home: Path, finished: Path) -> None:
    (run,) = copied(finished, home, "good-run")
    known, spec = run.state(), run.spec()
    for name in ("agent.json", "result.json"):
        data = json.loads((run.path / name).read_text())
        for field in ("version", "host"):
            data.pop(field, None)
        (run.path / name).write_text(json.dumps(data))
    text = (run.path / "events.jsonl").read_text().replace(f',"version":{VERSION}', "")
    (run.path / "events.jsonl").write_text(text)
    assert run.spec() == spec
    assert run.state().tasks == known.tasks
    (run.path / "result.json").unlink()
    assert run.state().state == "succeeded"


def test_one_odd_event_line_breaks_nothing(oarlock: Any, home: Path, finished: Path) -> None:
    run, _ = copied(finished, home, "bad-run", "good-run")
    (run.path / "result.json").unlink()
    odd_lines = ['{"t":1,"kind":"task"}', '{"t":"x","kind":"end"}', "[" * 100_000, '{"kind":"run"}']
    busy = json.dumps({"t": 2, "kind": "report", "task": "worker-0", "busy": "high", "step": "\ud800"})
    with (run.path / "events.jsonl").open("a") as file:
        file.write("\n".join([*odd_lines, busy]) + "\n")
    done = oarlock("ps")
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == {"bad-run", "good-run"}
    assert oarlock("status", "bad-run").returncode in (0, 1)


def test_a_thousand_mutated_records(home: Path, finished: Path) -> None:
    """Read in this process: what a verb reads is what these return. A few dozen go through the verbs."""
    seed = int(os.environ.get("OARLOCK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"OARLOCK_SEED={seed}")
    source = random.Random(seed)
    (run, other), count = copied(finished, home, "bad-run", "good-run"), 1000 * odd.ROUNDS
    originals = {name: (run.path / name).read_text() for name in FILES}
    for number in range(count):
        changed = source.sample(FILES, source.randrange(1, 3))
        for name in changed:
            (run.path / name).write_bytes(_mutated(source, name, originals[name]))
        if source.random() < 0.3:
            (run.path / "result.json").unlink()
        _read_all(run)
        if number % 40 == 0:
            words = source.choice([words for words in VERBS if words[0] not in _ELSEWHERE])
            _call(words, run.name, seed, number)
        assert {one.name for one in runs.all_runs()} == {run.name, other.name}
        for name in ("result.json", *changed):
            (run.path / name).write_text(originals[name])


def _mutated(source: random.Random, name: str, text: str) -> bytes:
    if name == "job.yaml":
        return odd.tear(source, text.encode())
    if name != "events.jsonl":
        return odd.mutated(source, text)
    lines = text.splitlines()
    for _ in range(source.randrange(1, 5)):
        at = source.randrange(len(lines))
        lines[at] = odd.mutated(source, text.splitlines()[at]).decode("latin-1").replace("\n", " ")
    return "\n".join(lines).encode("utf-8", "replace")


def _read_all(run: RunFolder) -> None:
    state = run.state()
    json.dumps(state.to_data(), allow_nan=False)
    state.accounts.in_seconds(1e9)
    try:
        run.spec()
    except OarlockError:
        pass


def _call(words: list[str], name: str, seed: int, number: int) -> None:
    """The verb itself, without the time that a process takes to start."""
    done = CliRunner().invoke(Verbs(), [name if word == "RUN" else word for word in words])
    expected = done.exception is None or isinstance(done.exception, (SystemExit, OarlockError, OSError))
    assert expected, f"seed {seed}, number {number}, {words}: {done.exception!r}\n{sys.exc_info()}"
