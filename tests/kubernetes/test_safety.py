"""Who may take part in a run: its own pods, by its token, and nobody else."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import RUN, Object, selecting
from oarlock.engines.kubernetes.lifecycle.stop_delete import KINDS
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import (
    Driver,
    Started,
    all_complete,
    driving,
    jobs_of,
    pods_of,
    running,
)
from tests.support.kubernetes.intruder import call_all, told, visiting
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

PAIR = {"worker": {"replicas": 2, **SMALL}}
IMAGE = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
DOOR = 9009
# Looks around, then waits for somebody to knock.
GUARDED = f"""
import os, socket
from pathlib import Path

token = Path("/oarlock/secret/token").read_text().strip()
shown = [*os.environ.values(), Path("/proc/1/cmdline").read_text(), Path("/proc/self/cmdline").read_text()]
service = Path("/var/run/secrets/kubernetes.io")
with socket.create_server(("", {DOOR})) as door:
    print("API token:", service.exists(), "token shown:", any(token in text for text in shown), len(token))
    door.accept()[0].close()
print("was let go by", os.environ["POD_NAME"])
"""
KNOCK = f"""
import os, socket
for place in os.environ["PLACES"].split():
    socket.create_connection((place, {DOOR}), timeout=30).close()
"""
TWIN = (Path(__file__).parent / "programs" / "cluster_config.py").read_text()


@pytest.fixture(scope="module")
def driver(cluster: Cluster, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("safety"), cluster.user, api) as found:
        yield found


class Guarded:
    """A run that strangers have called while it went on."""

    def __init__(self, driver: Driver, api: Api) -> None:
        self.run = driver.start(driver.job(GUARDED, roles=PAIR, limits={"restarts": 0}))
        self.pods = running(api, self.run.name, 2)
        self.service = api.get("Service", self.run.name)
        self.token = base64.b64decode(api.get("Secret", self.run.name)["data"]["token"]).decode()
        address = (self.service["spec"]["clusterIP"], self.service["spec"]["ports"][0]["port"])
        eventually(lambda: has_begun(driver, self.run.name), f"both tasks of {self.run.name}")
        self.answers = call_all(api, address, self.token, IMAGE)
        self.status = driver.call("status", "--json", self.run.name).stdout
        # The leader last: when it is let go, the run is over.
        last = [self.pods["worker-0"], self.pods["lead-0"]]
        places = " ".join(pod["status"]["podIP"] for pod in last)
        with visiting(api, KNOCK, IMAGE, {"PLACES": places}) as pod:
            self.knocked = told(api, pod)
        self.run.end()


def has_begun(driver: Driver, run: str) -> bool:
    told = driver.call("logs", run).stdout
    return told.count("API token:") == 2


@pytest.fixture(scope="module")
def guarded(driver: Driver, api: Api) -> Guarded:
    return Guarded(driver, api)


def test_whoever_lacks_the_token_is_refused_and_the_run_goes_on(guarded: Guarded, api: Api) -> None:
    """The cluster stores network policies without enforcing them: these calls do reach the coordinator."""
    refused = ("garbage", "no object", "too long", "wrong token", "wrong proof", "replayed")
    assert guarded.answers == {"genuine": "welcome", **dict.fromkeys(refused, "closed")}
    status = json.loads(guarded.status)
    assert [(task["name"], task["state"]) for task in status["tasks"]] == [
        ("worker-0", "running"),
        ("worker-1", "running"),
    ]
    run = guarded.run.succeed()
    for task in ("worker-0", "worker-1"):
        assert run.lines[task][-1] == f"was let go by {task}", f"{run.told} {guarded.knocked}"
    assert run.out.count("oarlock | generation") == 1, "nobody made it start again"
    all_complete(api, run.name)


def test_no_pod_has_an_api_token(guarded: Guarded, api: Api) -> None:
    """Seen from inside, and as the server has it: none is mounted whatever the service account says."""
    for lines in guarded.run.succeed().lines.values():
        assert lines[0].startswith("API token: False "), lines
    for pod in guarded.pods.values():
        assert pod["spec"]["automountServiceAccountToken"] is False
        sources = [source for volume in pod["spec"]["volumes"] for source in sources_of(volume)]
        assert "serviceAccountToken" not in sources


def sources_of(volume: Object) -> list[str]:
    return [key for source in volume.get("projected", {}).get("sources", []) for key in source]


def test_the_token_is_in_its_secret_and_nowhere_else(guarded: Guarded, api: Api) -> None:
    run = guarded.run.succeed()
    for lines in run.lines.values():
        assert "token shown: False 64" in lines[0], lines
    kinds = (*KINDS, "PersistentVolumeClaim", "Event")
    holders = [
        (kind, found["metadata"]["name"])
        for kind in kinds
        for found in api.all(kind)
        if holds(found, guarded.token)
    ]
    assert holders == [("Secret", run.name)]
    for pod in pods_of(api, run.name).values():
        assert not any(guarded.token.encode() in line for line in api.log(pod["metadata"]["name"]))
    here = [path for path in Path(run.env["OARLOCK_HOME"]).rglob("*") if path.is_file()]
    assert here
    assert not [path for path in here if guarded.token.encode() in path.read_bytes()]


def holds(found: Object, token: str) -> bool:
    """As text, as a Secret's data, or in a file that a ConfigMap carries."""
    carried = [base64.b64decode(piece) for piece in (found.get("binaryData") or {}).values()]
    written = json.dumps(found)
    return (
        token in written
        or base64.b64encode(token.encode()).decode() in written
        or any(token.encode() in piece for piece in carried)
    )


def test_the_policy_lets_in_this_runs_pods_and_nobody_else(guarded: Guarded, api: Api) -> None:
    policy = api.get("NetworkPolicy", guarded.run.name)["spec"]
    ours = {"matchLabels": {RUN: guarded.run.name}}
    assert policy["podSelector"] == ours
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"from": [{"podSelector": ours}]}]
    selected = {pod["metadata"]["name"] for pod in api.all("Pod", selecting(guarded.run.name))}
    assert selected == {pod["metadata"]["name"] for pod in guarded.pods.values()}
    service = guarded.service["spec"]["selector"]
    assert service[RUN] == guarded.run.name


def test_pods_are_what_restricted_takes(guarded: Guarded) -> None:
    """They ran where it is enforced, so this says why; on another cluster it is all that says it."""
    for pod in guarded.pods.values():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        inside = pod["spec"]["containers"][0]["securityContext"]
        assert inside == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert not any(pod["spec"].get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))


@only_in_soak
def test_runs_of_one_job_and_of_two_users_live_side_by_side(
    driver: Driver, cluster: Cluster, api: Api
) -> None:
    """Two of one user, one of another with its own claim, all of one job: each meets only its own."""
    folder = driver.job(TWIN, roles=PAIR)
    other = cluster.folder / "edit2.kubeconfig"
    runs = [driver.start(folder), driver.start(folder)]
    claim = ("--set", f"kubernetes.claim.name={folder.name}-2")
    runs.append(driver.start(folder, *claim, kubeconfig=other if other.exists() else cluster.user))
    for run in runs:
        met = f"answered: {run.name}/worker-0 {run.name}/worker-1"
        assert run.succeed().lines == {"worker-0": [met], "worker-1": [met]}
        assert sorted(jobs_of(api, run.name)) == ["lead", "worker"]
    assert len({token_of(api, run) for run in runs}) == 3
    mine = json.loads(driver.call("ps", "--json").stdout)
    names = {one["run"] for one in mine}
    assert {run.name for run in runs[:2]} <= names
    if other.exists():
        assert runs[2].name not in names


def token_of(api: Api, run: Started) -> str:
    return str(api.get("Secret", run.name)["data"]["token"])
