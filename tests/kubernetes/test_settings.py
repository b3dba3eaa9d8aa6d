"""The `kubernetes:` section of a job: what the API server holds of it, and what tasks find in their pods."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import JOB, RUN, Object, selecting
from oarlock.engines.kubernetes.lifecycle.stop_delete import KINDS
from oarlock.engines.kubernetes.manifests import default_images, groups, objects, packing
from oarlock.job import model as jobs
from oarlock.job.job_file import JobFile
from tests.support.clusters import Cluster
from tests.support.kubernetes.causes import plain_pod
from tests.support.kubernetes.driving import (
    MEET,
    Driver,
    Started,
    all_complete,
    all_gpus,
    driving,
    jobs_of,
    pods_of,
    unused,
)
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

IMAGE = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
VALUE = f"a-value-that-is-nowhere-else-{unused()}"
LOOK = """
import json, os, time
from pathlib import Path

def read(path):
    return Path(path).read_text() if Path(path).exists() else None

shared = Path(os.environ["CHECKPOINT_DIR"], "greeting")
if os.environ["OARLOCK_INDEX"] == "0" and os.environ["OARLOCK_ROLE"] == "worker":
    shared.with_suffix(".part").write_text("from worker-0")
    shared.with_suffix(".part").rename(shared)
deadline = time.monotonic() + 250
while not shared.exists() and time.monotonic() < deadline:
    time.sleep(0.05)
for place in ("made", "kept", "scratch"):
    if Path("/mnt", place).exists():
        Path("/mnt", place, os.environ["POD_NAME"]).write_text("written")
shm = os.statvfs("/dev/shm")
print(json.dumps({
    "user": os.getuid(), "group": os.getgid(), "shm": shm.f_frsize * shm.f_blocks,
    "file": read("/creds/KEY"), "variable": os.environ.get("KEY"), "named": os.environ.get("NAMED"),
    "mounted": sorted(os.listdir("/mnt")) if Path("/mnt").exists() else [],
    "shared": read(shared), "extra": os.environ.get("EXTRA"), "unbuffered": os.environ["PYTHONUNBUFFERED"],
    "hosts": "10.1.2.3" in read("/etc/hosts"),
}))
"""
WHO = """
import os
print(os.environ["POD_NAME"], os.environ.get("RANK"), os.environ["OARLOCK_WORLD"])
"""
CLUSTER_WIDE = {
    "PriorityClass": ("apis/scheduling.k8s.io/v1", "priorityclasses"),
    "ServiceAccount": ("api/v1", "namespaces/team/serviceaccounts"),
}


@pytest.fixture(scope="module")
def driver(cluster: Cluster, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("settings"), cluster.user, api) as found:
        yield found


@pytest.fixture(scope="module")
def arranged(admin: Api) -> Iterator[str]:
    """A priority class and a service account, which only an administrator may make; both are called so."""
    name = "prog-arranged"
    bodies: dict[str, Object] = {"PriorityClass": {"value": 10}, "ServiceAccount": {}}
    for kind, content in bodies.items():
        version, place = CLUSTER_WIDE[kind]
        admin.http.delete(f"{version}/{place}/{name}")
        manifest = {
            "kind": kind,
            "apiVersion": version.partition("/")[2],
            "metadata": {"name": name},
            **content,
        }
        answer = admin.http.post(f"{version}/{place}", json=manifest)
        assert answer.is_success, answer.text
    # The API server looks both up in copies that lag behind.
    probe = plain_pod("probe", priorityClassName=name, serviceAccountName=name)
    path = f"api/v1/namespaces/{admin.namespace}/pods?dryRun=All"
    eventually(lambda: admin.http.post(path, json=probe).is_success, "a pod that may have both")
    yield name
    for version, place in CLUSTER_WIDE.values():
        admin.http.delete(f"{version}/{place}/{name}")


class Full:
    """One run with nearly everything set."""

    def __init__(self, driver: Driver, arranged: str) -> None:
        self.secret = driver.secret({"KEY": VALUE, "OTHER": VALUE}, f"{unused()}.dotted")
        self.pull_secret = driver.make(
            "Secret", type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": '{"auths": {}}'}
        )
        self.kept = driver.claim()
        settings = {
            "user": 1234,
            "service_account": arranged,
            "priority_class": arranged,
            "pull_secrets": [self.pull_secret],
            "node_selector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "example.com/reserved", "operator": "Exists", "effect": "NoSchedule"}],
            "labels": {"team": "rowing"},
            "annotations": {"example.com/cost": "42 & more"},
            "shm": "96Mi",
            "claim": {"access": "ReadWriteMany", "shared": True, "size": "20Mi"},
            "secrets": {
                self.secret: {
                    "path": "/creds",
                    "variables": True,
                    "env": {"NAMED": "OTHER"},
                    "roles": ["worker"],
                }
            },
            "volumes": {
                "made": {"path": "/mnt/made", "size": "10Mi", "access": "ReadWriteMany"},
                "kept": {"path": "/mnt/kept", "claim": self.kept, "roles": ["ps"]},
                "scratch": {"path": "/mnt/scratch", "empty": True, "size": "5Mi", "roles": ["worker"]},
            },
            "pod": {
                "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["tracker.example"]}],
                "containers": [
                    {
                        "name": "main",
                        "env": [
                            {"name": "EXTRA", "value": "1"},
                            {"name": "PYTHONUNBUFFERED", "value": "yes"},
                        ],
                    }
                ],
            },
        }
        roles = {"worker": {"replicas": 2, **SMALL}, "ps": SMALL}
        self.folder = driver.job(LOOK + MEET, roles=roles, kubernetes=settings)
        self.job = self.folder.name
        self.run: Started = driver.start(self.folder)


@pytest.fixture(scope="module")
def full(driver: Driver, arranged: str) -> Full:
    return Full(driver, arranged)


@pytest.fixture(scope="module")
def grouped(full: Full, driver: Driver, cluster: Cluster) -> Started:
    """Two kinds of workers; on our own cluster one of them on a node with GPUs, and it asks for one."""
    on_gpus: Object = {"gpu": 1} if cluster.script else {}
    workers = [
        {"replicas": 2, **SMALL, "memory": "150Mi", "image": "python:3.12-slim", **on_gpus},
        {"replicas": 2, **SMALL, "node_selector": {"kubernetes.io/os": "linux"}},
    ]
    claim = driver.claim()
    folder = driver.job(
        WHO + MEET, roles={"worker": workers, "ps": SMALL}, kubernetes={"image": IMAGE, "claim": claim}
    )
    with all_gpus():
        return driver.start(folder).end()


def seen(full: Full) -> dict[str, Any]:
    """What each task has seen."""
    return {task: json.loads(lines[-1]) for task, lines in full.run.succeed().lines.items()}


def spec_of(pod: Object) -> Object:
    found: Object = pod["spec"]
    return found


def test_the_server_holds_what_the_section_says(
    full: Full, grouped: Started, arranged: str, api: Api
) -> None:
    full.run.succeed()
    for pod in pods_of(api, full.run.name).values():
        spec = spec_of(pod)
        assert spec["serviceAccountName"] == arranged
        assert spec["priorityClassName"] == arranged
        assert spec["priority"] == 10
        assert {"name": full.pull_secret} in spec["imagePullSecrets"]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert {"key": "example.com/reserved", "operator": "Exists", "effect": "NoSchedule"} in spec[
            "tolerations"
        ]
        assert spec["hostAliases"] == [{"ip": "10.1.2.3", "hostnames": ["tracker.example"]}]
        assert [container["name"] for container in spec["containers"]] == ["main"]


def test_all_that_is_made_carries_the_labels_and_annotations(full: Full, api: Api) -> None:
    full.run.succeed()
    made = [found for kind in KINDS for found in api.all(kind, selecting(full.run.name))]
    made += [api.get("PersistentVolumeClaim", name) for name in (full.job, f"{full.job}-made")]
    assert len(made) == 2 * 3 + 1 + 1 + 1 + 1 + 2  # Jobs and pods, ConfigMap, Secret, Service, policy; claims
    for found in made:
        assert found["metadata"]["labels"]["team"] == "rowing", found["metadata"]
        assert found["metadata"]["annotations"]["example.com/cost"] == "42 & more", found["metadata"]


def test_tasks_run_as_the_user_with_as_much_shared_memory_as_asked(full: Full) -> None:
    for found in seen(full).values():
        assert (found["user"], found["group"], found["shm"]) == (1234, 1234, 96 * 1024**2)


def test_a_secret_is_files_and_variables_for_the_roles_that_see_it(full: Full) -> None:
    found = seen(full)
    for worker in ("worker-0", "worker-1"):
        assert [found[worker][way] for way in ("file", "variable", "named")] == [VALUE] * 3
    assert [found["ps-0"][way] for way in ("file", "variable", "named")] == [None] * 3


def test_a_secrets_value_is_in_no_other_object(full: Full, api: Api) -> None:
    full.run.succeed()
    kinds = (*KINDS, "PersistentVolumeClaim", "Event")
    holders = {found["metadata"]["name"] for kind in kinds for found in api.all(kind) if holds(found, VALUE)}
    assert holders == {full.secret}


def holds(found: Object, value: str) -> bool:
    written = json.dumps(found)
    return value in written or base64.b64encode(value.encode()).decode() in written


def test_volumes_are_made_found_or_empty_for_the_roles_that_mount_them(full: Full, api: Api) -> None:
    found = seen(full)
    assert found["worker-0"]["mounted"] == found["worker-1"]["mounted"] == ["made", "scratch"]
    assert found["ps-0"]["mounted"] == ["kept", "made"]
    claim = api.get("PersistentVolumeClaim", f"{full.job}-made")
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Mi"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    volumes = {volume["name"]: volume for volume in spec_of(pods_of(api, full.run.name)["lead-0"])["volumes"]}
    assert volumes["scratch"]["emptyDir"] == {"sizeLimit": "5Mi"}


def test_a_shared_claim_is_one_folder_for_all(full: Full) -> None:
    assert {found["shared"] for found in seen(full).values()} == {"from worker-0"}


def test_what_stands_under_pod_is_merged_last(full: Full) -> None:
    """By name: a variable of its own, one of ours that it replaces, and the rest of the container stays."""
    for found in seen(full).values():
        assert (found["extra"], found["unbuffered"], found["hosts"]) == ("1", "yes", True)


def test_every_group_is_one_job_and_ranks_go_on_from_group_to_group(grouped: Started, api: Api) -> None:
    lines = grouped.succeed().lines
    assert lines == {
        **{f"worker-{rank}": [f"worker-{rank} {rank} 4"] for rank in range(4)},
        "ps-0": ["ps-0 None 4"],
    }
    found = all_complete(api, grouped.name)
    counts = {name: job["spec"]["completions"] for name, job in found.items()}
    assert counts == {"lead": 1, "worker": 1, "worker-2": 2, "ps": 1}
    containers = {name: spec_of(pod)["containers"][0] for name, pod in pods_of(api, grouped.name).items()}
    images = {name: container["image"] for name, container in containers.items()}
    first, others = "python:3.12-slim", IMAGE
    assert images == {
        "lead-0": first,
        "worker-0": first,
        **dict.fromkeys(("worker-2-0", "worker-2-1", "ps-0"), others),
    }
    assert containers["worker-0"]["resources"]["limits"]["memory"] == "214Mi"  # 64 of them for /dev/shm
    assert containers["worker-2-0"]["resources"]["limits"]["memory"] == "264Mi"


def test_only_those_that_ask_have_gpus(grouped: Started, cluster: Cluster, api: Api) -> None:
    if not cluster.script:
        pytest.skip("needs a node that claims nvidia.com/gpu")
    grouped.succeed()
    for name, pod in pods_of(api, grouped.name).items():
        limits = spec_of(pod)["containers"][0]["resources"]["limits"]
        if name in ("lead-0", "worker-0"):
            assert limits["nvidia.com/gpu"] == "1"
            assert spec_of(pod)["nodeName"] == "node-1"
        else:
            assert "nvidia.com/gpu" not in limits


def test_an_existing_claim_is_the_leaders_alone_and_outlives_the_run(
    grouped: Started, driver: Driver, api: Api
) -> None:
    grouped.succeed()
    stores = {name: store_of(pod) for name, pod in pods_of(api, grouped.name).items()}
    claim = stores.pop("lead-0")["persistentVolumeClaim"]["claimName"]
    assert all(store["emptyDir"] == {} for store in stores.values())
    done = driver.call("delete", "--force", "--volumes", grouped.name)
    assert done.returncode == 0, done.stderr
    assert api.get("PersistentVolumeClaim", claim)["status"]["phase"] == "Bound"
    assert not jobs_of(api, grouped.name)


def store_of(pod: Object) -> Object:
    return next(volume for volume in spec_of(pod)["volumes"] if volume["name"] == "oarlock-store")


def test_without_a_claim_none_is_made_and_the_run_ends_well(driver: Driver, api: Api) -> None:
    folder = driver.job("print('done')", roles={"worker": SMALL}, kubernetes={"claim": "none"})
    run = driver.start(folder).succeed()
    assert run.lines == {"worker-0": ["done"]}
    assert store_of(pods_of(api, run.name)["lead-0"])["emptyDir"] == {}
    assert api.find("PersistentVolumeClaim", folder.name) is None


def test_a_claim_that_is_being_deleted_is_not_taken(driver: Driver, api: Api) -> None:
    """It stays as long as a pod of another run does, and then goes with what this one would have saved."""
    folder = driver.job("print('done')", roles={"worker": SMALL})
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": folder.name, "finalizers": ["example.com/stays"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    api.create(claim)
    api.delete("PersistentVolumeClaim", folder.name)
    try:
        done = driver.start(folder).end()
        assert done.code == 2
        assert f"the claim {folder.name} of earlier runs is being deleted" in done.err
        assert not api.all("Job", f"{JOB}={folder.name}")
    finally:
        api.patch("PersistentVolumeClaim", folder.name, {"metadata": {"finalizers": None}})
    assert driver.start(folder).succeed().lines == {"worker-0": ["done"]}


# Manifests alone


def manifests(folder: Path, **fields: Any) -> list[Object]:
    (folder / "train.py").write_text("print()")
    described = jobs.parse({"name": "pure", "program": "train.py", **fields})
    return objects.standalone(packing.pack(JobFile(described, folder, None), "pure-run"))


def test_user_image_leaves_the_user_to_the_image(tmp_path: Path) -> None:
    made = manifests(tmp_path, kubernetes={"user": "image", "secrets": {"creds": "/creds"}})
    pod = next(found for found in made if found["kind"] == "Job")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    modes = {volume["secret"]["defaultMode"] for volume in pod["volumes"] if "secret" in volume}
    assert modes == {0o444}, "nobody knows its group"


@pytest.mark.parametrize(("shared", "prefers"), [(False, ["lead"]), (True, [])])
def test_a_leader_prefers_the_node_where_a_board_has_its_claim(
    tmp_path: Path, shared: bool, prefers: list[str]
) -> None:
    claim = {"access": "ReadWriteMany", "shared": True} if shared else {}
    jobs_made = [
        made
        for made in manifests(tmp_path, roles={"worker": 2}, kubernetes={"claim": claim})
        if made["kind"] == "Job"
    ]
    found = {
        made["metadata"]["name"].removeprefix("pure-run-"): made["spec"]["template"]["spec"].get("affinity")
        for made in jobs_made
    }
    assert [name for name, affinity in found.items() if affinity] == prefers
    for name in prefers:
        [wish] = found[name]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        wanted = wish["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert wanted == {"app.kubernetes.io/name": "pure", "oarlock.dev/helper": "tensorboard"}


@only_in_soak
def test_an_image_of_ours_has_a_version_whatever_is_installed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nodes keep it, and all have the same; when to pull is then for Kubernetes to decide."""
    for framework in ("tensorflow", "torch", "jax", "none"):
        for here in (None, "2.5.0", "2.99.0"):
            monkeypatch.setattr(default_images, "installed", lambda _, here=here: here)
            made = manifests(tmp_path, framework=framework)
            pod = next(found for found in made if found["kind"] == "Job")["spec"]["template"]["spec"]
            image, tag = pod["containers"][0]["image"].split(":")
            assert tag[0].isdigit(), (image, tag)
            if here == "2.5.0" and framework in ("tensorflow", "torch"):
                assert tag.startswith("2.5."), (image, tag)
            assert "imagePullPolicy" not in pod["containers"][0]
    made = manifests(tmp_path, kubernetes={"pull_policy": "Always"})
    pod = next(found for found in made if found["kind"] == "Job")["spec"]["template"]["spec"]
    assert pod["containers"][0]["imagePullPolicy"] == "Always"


def test_imports_are_not_kept_in_pods(tmp_path: Path) -> None:
    spec = spec_in(manifests(tmp_path, warm="10m"))
    assert (spec["warm"], spec["keep"]) == (True, 0.0)


def test_nothing_grows_with_the_number_of_workers(tmp_path: Path) -> None:
    shapes = []
    for workers in (2, 5, 50):
        made = manifests(tmp_path, roles={"chief": 1, "worker": workers, "ps": 2})
        shapes.append({**lengths(made), **lengths(spec_in(made), "spec.json")})
    assert shapes[0] == shapes[1] == shapes[2]


def test_one_job_more_per_group_however_large(tmp_path: Path) -> None:
    for counts, expected in (((1, 1), 2), ((2, 2), 3), ((40, 60), 3)):
        described = {"worker": [{"replicas": count} for count in counts]}
        made = manifests(tmp_path, roles=described)
        found = [manifest for manifest in made if manifest["kind"] == "Job"]
        assert len(found) == len(groups.of(jobs.parse({"program": "x.py", "roles": described}))) == expected
        offsets = [offset_of(job) for job in found]
        sizes = [job["spec"]["completions"] for job in found]
        assert offsets == [sum(sizes[:number]) for number in range(len(sizes))]
        assert sum(sizes) == sum(counts)
        assert all(job["metadata"]["labels"][RUN] == "pure-run" for job in found)


def offset_of(job: Object) -> int:
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return next(int(one["value"]) for one in variables if one["name"] == "OARLOCK_SEAT_OFFSET")


def spec_in(made: list[Object]) -> Any:
    return next(
        json.loads(found["data"]["spec.json"]) for found in made if "spec.json" in found.get("data", {})
    )


def lengths(found: Any, path: str = "") -> dict[str, int]:
    """How long every list and every mapping is, by where it stands."""
    if isinstance(found, dict):
        return {
            path: len(found),
            **{k: v for key in found for k, v in lengths(found[key], f"{path}/{key}").items()},
        }
    if isinstance(found, list):
        return {
            path: len(found),
            **{k: v for n, one in enumerate(found) for k, v in lengths(one, f"{path}/{n}").items()},
        }
    return {}
