"""Whose is it? A claim, a run or a server that the record does not name is refused, and left as it is."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import (
    COMPLETE,
    ID,
    JOB,
    LEAD,
    MANAGED,
    OWNER,
    RUN,
    Object,
    selecting,
)
from oarlock.engines.kubernetes.follow.replace_lost import Replacement
from oarlock.engines.kubernetes.lifecycle import identity, stop_delete, submit
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.clusters import Cluster, as_user
from tests.support.commands import Command
from tests.support.kubernetes.driving import Named, unused, written
from tests.support.kubernetes.small import SMALL_WORDS, sets
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

HASTY = (*SMALL_WORDS, *sets("limits.grace=1s"))
NO_CLAIM = ("--set", "kubernetes.claim=none")
ON = ("run", "--on", "kubernetes", "-d")
ENDLESS = "import time\nwhile True:\n    time.sleep(1)\n"
OUR_USER, OTHER_USER = "editor", "second-editor"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path / "program", ENDLESS)


@pytest.fixture
def other(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """A colleague, at another machine."""
    if not (cluster.folder / "edit2.kubeconfig").exists():
        pytest.skip("needs a second user")
    return as_user(cluster, "edit2", tmp_path / "other")


@pytest.fixture
def claim(api: Api, program: Path) -> Iterator[str]:
    """Where the job's own would be; whoever makes it."""
    yield program.stem
    api.delete("PersistentVolumeClaim", program.stem)


def test_a_claim_that_is_not_oarlocks_is_refused(
    oarlock: Command, api: Api, program: Path, claim: str, ended: list[str]
) -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}
    made = {"name": claim, "labels": {"app": "postgres"}}
    before = api.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": made, "spec": asked}
    )
    planned = oarlock("plan", str(program))
    assert planned.returncode == 1
    assert f"claim {claim} exists and is not Oarlock's" in planned.stdout
    refused = oarlock(*ON, "--name", "live-foreign", *HASTY, str(program))
    assert refused.returncode == 2
    assert f"claim {claim} exists and is not Oarlock's" in refused.stderr
    assert f"--set kubernetes.claim={claim}" in refused.stderr
    assert "Traceback" not in refused.stderr
    eventually(lambda: not stop_delete.remaining(api, Named("live-foreign")), "nothing of the refused run")
    now = api.get("PersistentVolumeClaim", claim)["metadata"]
    assert (now["uid"], now["labels"]) == (before["metadata"]["uid"], made["labels"])
    assert "deletionTimestamp" not in now
    ended.append("live-meant")
    meant = oarlock(*ON, "--name", "live-meant", "--set", f"kubernetes.claim={claim}", *HASTY, str(program))
    assert meant.returncode == 0, meant.stderr


def test_a_claim_of_another_job_or_of_another_user_is_refused(
    oarlock: Command, api: Api, program: Path, claim: str, other: dict[str, str], ended: list[str]
) -> None:
    ended.append("live-theirs")
    assert oarlock(*ON, "--name", "live-theirs", *HASTY, str(program), env=other).returncode == 0
    assert api.get("PersistentVolumeClaim", claim)["metadata"]["annotations"][OWNER] == OTHER_USER
    refused = oarlock(*ON, "--name", "live-mine", *HASTY, str(program))
    assert refused.returncode == 2
    assert f"claim {claim} exists and is {OTHER_USER}'s, and you are {OUR_USER}" in refused.stderr
    taken = ("--set", "name=prog-another", "--set", f"kubernetes.claim.name={claim}")
    refused = oarlock(*ON, "--name", "live-mine", *HASTY, *taken, str(program), env=other)
    assert f"claim {claim} exists and is that of job {claim}" in refused.stderr
    # The same person at a third machine.
    ended.append("live-again")
    third = {**other, "OARLOCK_HOME": f"{other['OARLOCK_HOME']}-3"}
    again = oarlock(*ON, "--name", "live-again", *HASTY, str(program), env=third)
    assert again.returncode == 0, again.stderr
    # Who has deleted a colleague's run has not deleted what it has saved.
    assert oarlock("delete", "--force", "live-theirs", env=other).returncode == 0
    kept = oarlock("delete", "--force", "--volumes", "live-again")
    assert kept.returncode == 0, kept.stderr
    assert f"kept: claim {claim}" in kept.stderr
    assert "deletionTimestamp" not in api.get("PersistentVolumeClaim", claim)["metadata"]


def test_a_later_run_of_the_same_name_is_somebody_elses(
    oarlock: Command, api: Api, program: Path, other: dict[str, str], ended: list[str]
) -> None:
    ended.append("live-nightly")
    words = (*ON, "--name", "live-nightly", *NO_CLAIM, *HASTY, str(program))
    assert oarlock(*words).returncode == 0
    stop_delete.delete(api, Named("live-nightly"), now=True, patience=300)  # as its ttl would
    assert oarlock(*words, env=other).returncode == 0
    theirs = [running(api, "live-nightly")]

    assert oarlock("status", "live-nightly").stdout.startswith("live-nightly lost")
    verbs = [
        ("delete", "live-nightly"),
        ("delete", "--force", "live-nightly"),
        ("delete", "--finished"),
        ("run", "--resume", "live-nightly"),
        ("exec", "live-nightly", "--", "true"),
        ("pull", "live-nightly"),
        ("inspect", "live-nightly", "--", "true"),
        ("checkpoints", "live-nightly"),
    ]
    for verb in verbs:
        refused = oarlock(*verb)
        assert refused.returncode != 0, verb
        assert f"a later one of {OTHER_USER}: it was left alone" in refused.stderr, (verb, refused.stderr)
        assert "Traceback" not in refused.stderr
    theirs.append(running(api, "live-nightly"))
    assert theirs[0] == theirs[1]
    assert oarlock("delete", "--record", "live-nightly").returncode == 0
    assert [run.name for run in runs.all_runs()] == []
    assert running(api, "live-nightly") == theirs[0]
    # Without a record here the name means what is on the cluster; its record says that it was not sent here.
    eventually(
        lambda: oarlock("status", "live-nightly").stdout.startswith("live-nightly running"), "tasks of theirs"
    )
    place = json.loads((runs.find("live-nightly").path / "cluster.json").read_bytes())
    assert "sent_from" not in place
    assert place["lead"] == lead_of(api, "live-nightly")["metadata"]["uid"]


def running(api: Api, run: str) -> list[object]:
    """The uids of its Jobs and pods, once it runs. Had somebody replaced one, it would be another list."""
    pods = eventually(
        lambda: [pod for pod in api.all("Pod", selecting(run)) if pod["status"].get("phase") == "Running"],
        f"a running pod of {run}",
    )
    jobs = api.all("Job", selecting(run))
    assert not any(one["spec"].get("suspend") for one in jobs)
    assert not any("deletionTimestamp" in one["metadata"] for one in (*jobs, *pods))
    return [one["metadata"]["uid"] for one in (*jobs, *pods)]


def lead_of(api: Api, run: str) -> Object:
    return api.get("Job", f"{run}-lead")


def test_a_context_that_leads_elsewhere_is_refused(
    oarlock: Command, api: Api, cluster: Cluster, program: Path, tmp_path: Path, ended: list[str]
) -> None:
    """The other address is of the same API server: without the look at it all of these would work."""
    ended.append("live-moved")
    assert oarlock(*ON, "--name", "live-moved", *NO_CLAIM, *HASTY, str(program)).returncode == 0
    before = running(api, "live-moved")
    config = json.loads(cluster.user.read_text())
    server = config["clusters"][0]["cluster"]["server"]
    with forwarded(server) as elsewhere:
        config["clusters"][0]["cluster"]["server"] = elsewhere
        (tmp_path / "moved").write_text(json.dumps(config))
        env = {**os.environ, "KUBECONFIG": str(tmp_path / "moved")}
        assert "live-moved" in oarlock("ps", "--refresh", env={**env, "OARLOCK_HOME": str(tmp_path)}).stderr
        refuses_all(oarlock, server, elsewhere, env)
    assert running(api, "live-moved") == before
    assert oarlock("delete", "--force", "live-moved").returncode == 0


@contextmanager
def forwarded(server: str) -> Iterator[str]:
    """Another address of the same server; its certificate is for 127.0.0.1, too."""
    host, port = server.removeprefix("https://").rsplit(":", 1)

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as there:
                threading.Thread(target=pour, args=(there, self.request), daemon=True).start()
                pour(self.request, there)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forward) as door:
        door.daemon_threads = True
        threading.Thread(target=door.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{door.server_address[1]}"
        door.shutdown()


def pour(source: socket.socket, into: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            into.sendall(piece)
        into.shutdown(socket.SHUT_WR)


def refuses_all(oarlock: Command, server: str, elsewhere: str, env: dict[str, str]) -> None:
    seen = oarlock("status", "live-moved", env=env)
    assert f"was sent to {server}, and context" in seen.stderr
    assert f"leads to {elsewhere} now: nothing was done" in seen.stderr
    assert runs.find("live-moved").state().state != "lost"
    for verb in (("delete", "--force"), ("stop",), ("stop", "--now"), ("scale",), ("stacks",), ("pull",)):
        count = ("2",) if verb == ("scale",) else ()
        refused = oarlock(*verb, "live-moved", *count, env=env)
        assert refused.returncode != 0, verb
        assert f"leads to {elsewhere} now" in refused.stderr, (verb, refused.stderr)


@only_in_soak
def test_a_record_of_an_earlier_version_is_known_by_when_it_was_made(
    oarlock: Command, api: Api, program: Path, ended: list[str]
) -> None:
    ended.append("live-early")
    assert oarlock(*ON, "--name", "live-early", *NO_CLAIM, *HASTY, str(program)).returncode == 0
    for kind in stop_delete.KINDS:
        for found in api.all(kind, selecting("live-early")):
            api.change(kind, found, {"metadata": {"labels": {ID: None}}})
    run = runs.find("live-early")
    place = {name: value for name, value in identity._read(run).items() if name not in ("id", "lead")}
    (run.path / "cluster.json").write_text(json.dumps(place))
    long_ago = time.time() - 86400
    now = run.created
    os.utime(run.path / "job.yaml", (long_ago, long_ago))
    refused = oarlock("delete", "--force", "live-early")
    assert refused.returncode == 1
    assert "is not the one that was sent from here" in refused.stderr
    assert lead_of(api, "live-early")
    os.utime(run.path / "job.yaml", (now, now))
    assert oarlock("stop", "--now", "live-early").returncode == 0
    assert identity._read(run)["lead"] == lead_of(api, "live-early")["metadata"]["uid"]
    assert oarlock("delete", "live-early").returncode == 0
    assert stop_delete.remaining(api, Named("live-early")) == []


def test_what_is_sent_again_is_the_same_run(
    oarlock: Command, api: Api, tmp_path: Path, other: dict[str, str], ended: list[str]
) -> None:
    """New Jobs, the same id: another machine's record goes on, too."""
    ended.append("live-resent")
    failing = written(tmp_path / "failing", "raise SystemExit(3)\n")
    words = (*NO_CLAIM, *HASTY, "--set", "limits.restarts=0", str(failing))
    oarlock("run", "--on", "kubernetes", "--name", "live-resent", *words)
    assert oarlock("status", "live-resent", env=other).stdout.startswith("live-resent failed")
    before = lead_of(api, "live-resent")["metadata"]
    digest = as_if_pulled_before(runs.find("live-resent"))
    oarlock("run", "--resume", "live-resent")
    state = runs.find("live-resent").state()
    assert [digests[1:] for digests in state.images.values()] == [[digest]]
    assert any(f"than before: {digest}, and not sha256:000" in note for note in state.notes), state.notes
    after = lead_of(api, "live-resent")["metadata"]
    assert after["uid"] != before["uid"]
    assert after["labels"][ID] == before["labels"][ID]
    assert identity._read(runs.find("live-resent"))["lead"] == after["uid"]
    assert oarlock("delete", "live-resent", env=other).returncode == 0


def as_if_pulled_before(run: RunFolder) -> str:
    """The digest of its image, which the record then has as another one."""
    [[digest]] = run.state().images.values()
    assert digest.startswith("sha256:")
    events = run.path / "events.jsonl"
    events.write_text(events.read_text().replace(digest, f"sha256:{'0' * 64}"))
    return digest


@only_in_soak
def test_one_command_deletes_all_runs_of_a_job_with_their_claim(
    oarlock: Command, api: Api, tmp_path: Path
) -> None:
    program = written(tmp_path / "short", "print('done')\n")
    for name in ("live-one", "live-two"):
        done = oarlock("run", "--on", "kubernetes", "--name", name, *HASTY, str(program))
        assert done.returncode == 0, done.stderr
    refused = oarlock("delete", "--volumes", "live-one")
    assert refused.returncode == 1
    assert "is also used by live-two" in refused.stderr
    assert lead_of(api, "live-one")
    command = refused.stderr.split("`")[1].split()
    assert command == ["oarlock", "delete", "--volumes", "live-one", "live-two"]
    done = oarlock(*command[1:])
    assert done.returncode == 0, done.stderr
    assert "kept" not in done.stderr
    assert api.find("PersistentVolumeClaim", program.stem) is None
    assert runs.all_runs() == []


def test_only_my_own_half_sent_runs_are_cleared_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = {owner: half_sent(api, owner) for owner in (OUR_USER, OTHER_USER, "")}
    complete = half_sent(api, OUR_USER, {COMPLETE: "true"})
    ahead = time.time() + 86400
    listed = api.all

    def only_these(kind: str, labels: str) -> list[Object]:
        """Other tests send runs at this moment, and this test takes all of them for stale."""
        return [one for one in listed(kind, labels) if one["metadata"]["name"] in (*jobs.values(), complete)]

    monkeypatch.setattr(api, "all", only_these)
    try:
        monkeypatch.setattr(time, "time", lambda: ahead)  # a clock that is wrong
        submit.clear_stale(api)
        assert all(api.find("Job", name) for name in (*jobs.values(), complete))
        monkeypatch.setattr(submit, "_STALE", -60.0)
        submit.clear_stale(api)
        eventually(lambda: api.find("Job", jobs[OUR_USER]) is None, "the end of our own")
        assert all(api.find("Job", name) for name in (jobs[OTHER_USER], jobs[""], complete))
    finally:
        for name in (*jobs.values(), complete):
            api.delete("Job", name)


def half_sent(api: Api, owner: str, notes: dict[str, str] | None = None) -> str:
    """The first thing that is sent of a run."""
    name = f"{unused()}-lead"
    container = {"name": "main", "image": "busybox"}
    metadata = {
        "name": name,
        "labels": {MANAGED: "oarlock", LEAD: "true", RUN: name, JOB: name},
        "annotations": {**(notes or {}), **({OWNER: owner} if owner else {})},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    described = {"suspend": True, "template": template}
    api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": described})
    return name


def test_a_pod_that_is_replaced_keeps_the_finalizers_of_others(
    oarlock: Command, api: Api, program: Path, ended: list[str]
) -> None:
    ended.append("live-kept")
    words = (*NO_CLAIM, *HASTY, "-n", "2", str(program))
    assert oarlock(*ON, "--name", "live-kept", *words).returncode == 0
    [pod] = eventually(lambda: api.all("Pod", f"{selecting('live-kept')},!{LEAD}"), "the second pod")
    name = pod["metadata"]["name"]
    theirs = "example.com/keep"
    api.patch("Pod", name, {"metadata": {"finalizers": [*pod["metadata"]["finalizers"], theirs]}})
    try:
        api.delete("Pod", name)
        Replacement(api).release(api.get("Pod", name))
        assert api.get("Pod", name)["metadata"]["finalizers"] == [theirs]
    finally:
        api.patch("Pod", name, {"metadata": {"finalizers": None}})


def test_a_patch_is_for_the_object_that_was_seen(api: Api) -> None:
    """Between the look and the deed a name may be given again."""
    name = half_sent(api, OUR_USER)
    try:
        found = api.get("Job", name)
        earlier = {"metadata": {**found["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
        with pytest.raises(OarlockError):
            api.change("Job", earlier, {"spec": {"parallelism": 2}})
        api.delete("Job", name, only={"uid": earlier["metadata"]["uid"]})
        now = api.get("Job", name)
        assert (now["metadata"]["uid"], now["spec"]) == (found["metadata"]["uid"], found["spec"])
        assert "deletionTimestamp" not in now["metadata"]
    finally:
        api.delete("Job", name)
