"""`oarlock render`: what it prints is what kubectl reads, and it trains with nobody's help."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.manifests import yaml_file
from oarlock.job import job_file
from tests.support.kubernetes.small import SMALL_WORDS
from tests.support.small_programs import write
from tests.support.waiting import eventually

KINDS = ("Job", "Pod", "Service", "ConfigMap", "Secret", "NetworkPolicy")
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kubectl(cluster: Any) -> Kubectl:
    ours = cluster.folder / "bin" / "kubectl"
    program = str(ours) if ours.exists() else shutil.which("kubectl")
    if program is None:
        pytest.skip("there is no kubectl")

    def call(words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            f"{program} {words.removeprefix('kubectl ')}",
            shell=True,
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


@pytest.fixture
def cleared(api: Api) -> Iterator[None]:
    yield
    for kind in KINDS:
        api.delete_all(kind, "oarlock.dev/run=tool-rendered")
    api.delete("PersistentVolumeClaim", "tool-render")


def test_it_needs_no_cluster(oarlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    write(tmp_path / "train.py", "print('hello')")
    done = oarlock(
        "render", "-n", "2", "--name", "tool-a", "--namespace", "here", "--json", "train.py", "--a"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["apiVersion"], told["kind"]) == ("v1", "List")
    kinds = [one["kind"] for one in told["items"]]
    assert kinds == [
        *("PersistentVolumeClaim", "ConfigMap", "Secret", "Service", "NetworkPolicy", "Job", "Job"),
    ]
    assert {one["metadata"]["namespace"] for one in told["items"]} == {"here"}
    assert not any(one["spec"].get("suspend") for one in told["items"] if one["kind"] == "Job")
    spec = json.loads(told["items"][1]["data"]["spec.json"])
    assert (spec["run"], spec["program"]["args"]) == ("tool-a", ["--a"])


def test_a_viewer_can_render(oarlock: Any, cluster: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "view.kubeconfig"))
    write(tmp_path / "train.py", "print('hello')")
    assert oarlock("render", "train.py").returncode == 0


def test_what_cannot_be_rendered_is_one_line(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('hello')")
    for words, said in (
        (("--name", "No_Name", "train.py"), "invalid run name 'No_Name'"),
        (("nowhere.py",), "nowhere.py"),
        (("--namespace", "Not OK", "train.py"), "namespace"),
    ):
        done = oarlock("render", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert len(done.stderr.splitlines()) <= 2


def test_every_rendering_has_a_token_and_a_name_of_its_own(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('hello')")
    first, second = (json.loads(oarlock("render", "--json", "train.py").stdout)["items"] for _ in range(2))
    secrets = [next(one for one in told if one["kind"] == "Secret") for told in (first, second)]
    assert secrets[0]["data"]["token"] != secrets[1]["data"]["token"]
    assert secrets[0]["metadata"]["name"] != secrets[1]["metadata"]["name"]


def test_nothing_in_it_grows_with_the_number_of_workers(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('hello')")
    few, many = (_rendered(tmp_path, workers) for workers in (2, 2000))
    assert few != many
    assert re.sub("[0-9]+", "N", few) == re.sub("[0-9]+", "N", many)


def _rendered(folder: Path, workers: int) -> str:
    found = job_file.load("train.py", overrides={"roles.worker.replicas": str(workers)}, cwd=folder)
    text = yaml_file.render(found, "tool-sized").text
    return re.sub('(token: |"id": |oarlock.dev/id: ).*', "made anew each time", text)


def test_kubectl_reads_what_was_meant(kubectl: Kubectl, tmp_path: Path) -> None:
    """Its YAML has numbers and truths where PyYAML has texts."""
    write(tmp_path / "train.py", "print('hello')\n")
    odd = ["1e3", "y", "n", "0x10", "on", "null", "1_000", "0b11", "012", "true", "1.5", "No"]
    sets = [f"kubernetes.labels.odd{number}={text}" for number, text in enumerate(odd)]
    notes = [*sets, "kubernetes.annotations.note=two\nlines: with # all - kinds\n  of: {things}\n"]
    rendered = yaml_file.render(job_file.load("train.py", sets=notes, cwd=tmp_path), "tool-odd")
    labels = rendered.objects[0]["metadata"]["labels"]
    assert [labels[f"odd{number}"] for number in range(len(odd))] == odd
    done = kubectl("create --dry-run=client -o json -f -", rendered.text)
    assert done.returncode == 0, done.stderr
    read = json.loads(f"[{done.stdout.replace('}' + chr(10) + '{', '},{')}]")
    for ours, theirs in zip(rendered.objects, read, strict=True):
        assert {**theirs, "metadata": {**theirs["metadata"], "namespace": ""}} == {
            **ours,
            "metadata": {**ours["metadata"], "namespace": ""},
        }


def test_a_large_program_fits_into_what_kubectl_writes_beside_it(kubectl: Kubectl, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('hello')")
    (tmp_path / "weights").write_bytes(random.Random(1).randbytes(1_000_000))
    rendered = yaml_file.render(job_file.load("train.py", cwd=tmp_path), "tool-large")
    maps = [one for one in rendered.objects if one["kind"] == "ConfigMap"]
    done = kubectl("apply --dry-run=server -f -", yaml.dump_all(maps))
    assert done.returncode == 0, done.stderr
    assert len(maps) > 4


def test_it_trains_to_the_end_and_its_comment_removes_it(
    oarlock: Any, kubectl: Kubectl, api: Api, cleared: None, tmp_path: Path
) -> None:
    program = """
        import oarlock
        me = oarlock.current()
        for step in range(1, 4):
            me.report(step=step, total=3, loss=1 / step)
        print("rank", me.rank, "of", me.world)
    """
    write(tmp_path / "train.py", program)
    words = ("-n", "2", "--name", "tool-rendered", "--set", "name=tool-render", *SMALL_WORDS)
    done = oarlock("render", *words, "train.py")
    assert done.returncode == 0, done.stderr
    told = dict(re.findall(r"^# (start|follow|remove) +(kubectl [^#\n]*)", done.stdout, re.MULTILINE))
    applied = kubectl(told["start"].replace("FILE", "-"), done.stdout)
    assert applied.returncode == 0, applied.stderr

    def has_ended() -> bool:
        jobs = api.all("Job", "oarlock.dev/run=tool-rendered")
        return len(jobs) == 2 and all(job.get("status", {}).get("succeeded") == 1 for job in jobs)

    eventually(has_ended, "end of both Jobs")
    logged = kubectl(told["follow"]).stdout
    assert "rank 0 of 2" in logged
    assert "succeeded" in logged
    removed = kubectl(told["remove"])
    assert removed.returncode == 0, removed.stderr
    eventually(lambda: not _left(api), "end of all objects")
    assert api.find("PersistentVolumeClaim", "tool-render") is not None


def _left(api: Api) -> list[str]:
    return [kind for kind in KINDS if api.all(kind, "oarlock.dev/run=tool-rendered")]
