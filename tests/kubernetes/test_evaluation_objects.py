"""The pod that scores checkpoints, made from the run's own pods."""

from __future__ import annotations

from typing import Any

from oarlock.engines.kubernetes.api.names import HELPER, RUN, Identity, Object
from oarlock.engines.kubernetes.claims import claim_pod, evaluation_objects
from oarlock.engines.kubernetes.manifests import groups
from oarlock.job.model import parse

WHO = Identity("r1", "abcd")


def pod_of(**fields: Any) -> Object:
    job = parse({"name": "mine", "program": "train.py", **fields})
    specs = {
        group.role: claim_pod.template_of("r1", job, group)["spec"] for group in reversed(groups.of(job))
    }
    leader = specs[groups.of(job)[0].role]
    return evaluation_objects.pod("p1", WHO, "mine", specs.get("evaluator"), leader, "agent")


def main_of(pod: Object) -> Object:
    [container] = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_it_has_what_the_evaluator_has_and_the_claim_of_the_leader() -> None:
    pod = pod_of(
        roles={"worker": {"replicas": 2, "gpu": 2, "cpu": 8}, "evaluator": {"cpu": 3, "image": "scorer:2"}},
        kubernetes={
            "image": "trainer:1",
            "secrets": {"keys": {"variables": True}},
            "volumes": {
                "mine": {"claim": "of-workers", "path": "/mine", "roles": ["worker"]},
                "ours": {"claim": "of-all", "path": "/ours", "read_only": True},
            },
        },
    )
    container = main_of(pod)
    assert (container["image"], container["resources"]["requests"]["cpu"]) == ("scorer:2", "3000m")
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert {"name": "OARLOCK_CORES", "value": "3"} in container["env"]
    assert claim_pod.claims_of(pod["spec"]) == {"mine", "of-workers", "of-all"}
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert mounts["/oarlock/store"]["name"] == "oarlock-store"
    assert (mounts["/mine"]["name"], mounts["/ours"]["readOnly"]) == ("mine", True)
    assert {one["name"] for one in mounts.values()} == {one["name"] for one in pod["spec"]["volumes"]}


def test_without_an_evaluator_it_is_the_leader_without_its_gpus() -> None:
    pod = pod_of(roles={"worker": {"replicas": 2, "gpu": 2, "cpu": 8}}, kubernetes={"image": "trainer:1"})
    container = main_of(pod)
    assert (container["image"], container["resources"]["requests"]["cpu"]) == ("trainer:1", "8000m")
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    kept = main_of(pod_of(roles={"worker": 1, "evaluator": {"gpu": 1}}))
    assert kept["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_nobody_takes_it_for_a_task_and_it_has_neither_token() -> None:
    pod = pod_of(roles={"worker": 2, "evaluator": 1})
    assert pod["metadata"]["labels"] | {RUN: "r1", HELPER: "evaluate"} == pod["metadata"]["labels"]
    assert "oarlock.dev/role" not in pod["metadata"]["labels"]
    spec, container = pod["spec"], main_of(pod)
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert not [one for one in spec["volumes"] if "secret" in one]
    names = {one["name"] for one in container["env"]}
    assert not names & {"OARLOCK_SEAT_ROLE", "OARLOCK_COORDINATOR"}


def test_its_agent_is_the_clients_and_its_program_that_of_the_run() -> None:
    job = parse({"name": "mine", "program": "train.py"})
    leader = claim_pod.template_of("r1", job, groups.of(job)[0])["spec"]
    code = next(one for one in leader["volumes"] if one["name"] == "oarlock-code")
    code["projected"]["sources"] = [{"configMap": {"name": f"r1-code-{number}"}} for number in (0, 1)]
    pod = evaluation_objects.pod("p1", WHO, "mine", None, leader, "agent")
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "oarlock-code"]
    agent, *parts = (one["configMap"] for one in volume["projected"]["sources"])
    assert agent == {"name": "agent"}
    assert [(one["name"], one["items"][0]["path"], one["optional"]) for one in parts] == [
        ("r1-code-0", "program.tar.gz.00", True),
        ("r1-code-1", "program.tar.gz.01", True),
    ]
