"""The objects of a served model: what a Deployment needs so that no request fails, and nothing more."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api.names import LEAD, REVISION, ROLE, RUN, Identity, Object
from oarlock.engines.kubernetes.deployments import (
    kserve,
    pod_traffic,
    readiness,
    server_address,
    server_objects,
    server_packing,
)
from oarlock.engines.kubernetes.deployments.server_parcel import Claims, Reach, ServerParcel
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import JobError
from oarlock.job.model import Job, Replicas, Role, parse
from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.settings import Settings

SETTINGS = Settings(name="digits", source="/oarlock/work/model", host="0.0.0.0", grace=20)
BY_KIND = {
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Service": "v1",
}


def parcel(**fields: Any) -> ServerParcel:
    job = Job(name="digits", module="oarlock.serving")
    known = {
        "run": "digits-serve",
        "job": job,
        "settings": SETTINGS,
        "image": "python:3.11-slim",
        "archive": b"server",
        "part": Role(),
        "id": "a1",
        "owner": "ann",
    }
    return ServerParcel(**{**known, **fields})


def pod_of(found: ServerParcel) -> Object:
    spec: Object = server_objects.deployment(found, 1)["spec"]["template"]["spec"]
    return spec


def container_of(found: ServerParcel) -> Object:
    [container] = pod_of(found)["containers"]
    return dict(container)


def kinds(found: ServerParcel) -> list[str]:
    return [one["kind"] for one in server_objects.standing(found)]


def model(folder: Path, number: int = 1, weights: bytes = b"w") -> Path:
    version = folder / str(number)
    version.mkdir(parents=True)
    tensor = Tensor("x", "float32", (None, 2))
    manifest = Manifest("python", (tensor,), (tensor,), entry="model.py", frameworks={"torch": "2.9"})
    (version / "oarlock.json").write_bytes(manifest.to_json())
    (version / "model.py").write_text("def load(folder): ...\n")
    (version / "weights").write_bytes(weights)
    return folder


def order(folder: Path, **fields: Any) -> ServeOrder:
    settings = Settings(name="digits", source=str(folder), **fields.pop("settings", {}))
    job = Job(name="digits", module="oarlock.serving")
    return ServeOrder(**{"settings": settings, "job": job, "part": Role(), **fields})


def test_a_pod_goes_only_when_another_answers_in_its_place() -> None:
    spec = server_objects.deployment(parcel(), 3)["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert "replicas" not in server_objects.deployment(parcel(), None)["spec"]


def test_loading_is_not_broken() -> None:
    container = container_of(parcel())
    assert container["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    for probe in (container["readinessProbe"], container["livenessProbe"]):  # a busy server answers late
        assert probe["failureThreshold"] * probe["timeoutSeconds"] >= 60
    patience = container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"]
    assert patience >= 1800


def test_probes_speak_tls_where_the_server_does() -> None:
    secure = replace(SETTINGS, tls_cert="/c", tls_key="/k")
    assert container_of(parcel(settings=secure))["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert container_of(parcel())["readinessProbe"]["httpGet"]["scheme"] == "HTTP"


def test_a_pod_that_goes_answers_until_everybody_knows_and_has_time_for_what_it_has() -> None:
    pod, container = pod_of(parcel()), container_of(parcel())
    assert "sleep(5)" in container["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert pod["terminationGracePeriodSeconds"] > 5 + SETTINGS.grace


def test_a_pod_has_no_rights_and_passes_restricted() -> None:
    pod, container = pod_of(parcel()), container_of(parcel())
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_only_its_namespace_reaches_it_unless_it_has_a_host() -> None:
    [rule] = server_objects.network_policy(parcel())["spec"]["ingress"]
    assert rule == {"ports": [{"port": 8000, "protocol": "TCP"}], "from": [{"podSelector": {}}]}
    [rule] = server_objects.network_policy(parcel(reach=Reach("d.example")))["spec"]["ingress"]
    assert "from" not in rule


def test_what_stands_beside_the_pods_is_what_was_asked_for() -> None:
    assert kinds(parcel()) == ["Service", "NetworkPolicy", "PodDisruptionBudget"]
    elastic = parcel(part=Role(replicas=Replicas(1, 4)), reach=Reach("d.example"))
    assert kinds(elastic)[3:] == ["HorizontalPodAutoscaler", "Ingress"]
    assert kinds(parcel(reach=Reach("d.example", "infra/gate")))[3:] == ["HTTPRoute"]
    assert {one["kind"] for one in server_objects.standing(elastic)} < {*server_objects.STANDING}
    for one in server_objects.standing(elastic):
        assert one["apiVersion"] == BY_KIND.get(one["kind"], one["apiVersion"])
    scaler = server_objects.autoscaler(elastic)["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 4)


def test_a_route_names_its_gateway() -> None:
    route = server_objects.route(parcel(reach=Reach("d.example", "infra/gate")))["spec"]
    assert route["parentRefs"] == [{"name": "gate", "namespace": "infra"}]
    assert route["hostnames"] == ["d.example"]


def test_an_update_has_other_config_maps_and_the_same_selector() -> None:
    before, after = parcel(), parcel(model=b"another", revision=2)
    assert not before.code.keys() & after.code.keys()
    assert before.selector == after.selector
    assert server_objects.deployment(after, 1)["spec"]["template"]["metadata"]["annotations"][REVISION] == "2"
    assert parcel(settings=replace(SETTINGS, deadline=7)).digest != before.digest
    assert parcel(files={"predict.py": "x = 1"}).digest != before.digest


def test_a_model_is_cut_into_parts_that_an_object_can_hold() -> None:
    found = parcel(model=bytes(range(256)) * 40, piece=4096)
    maps = server_objects.config_maps(found)
    assert len(maps) > 2
    pieces = {
        name: base64.b64decode(data)
        for one in maps
        for name, data in one["binaryData"].items()
        if name.startswith("model.tar.gz.")
    }
    assert b"".join(pieces[name] for name in sorted(pieces)) == found.model
    for one in maps:
        size = sum(len(base64.b64decode(data)) for data in one["binaryData"].values())
        assert size + sum(len(text) for text in one.get("data", {}).values()) <= 4096
    sources = next(one for one in pod_of(found)["volumes"] if one["name"] == "oarlock-code")["projected"]
    assert [one["configMap"]["name"] for one in sources["sources"]] == [*found.code]


def test_a_token_is_in_a_secret_and_nowhere_else() -> None:
    found = parcel(access={"token": b"open sesame"})
    [secret] = server_objects.access(found)
    assert base64.b64decode(secret["data"]["token"]) == b"open sesame"
    rest = [*server_objects.config_maps(found), *server_objects.standing(found)]
    rest.append(server_objects.deployment(found, 1))
    assert "sesame" not in json.dumps(rest)
    assert base64.b64encode(b"open sesame").decode() not in json.dumps(rest)
    volumes = {one["name"]: one for one in pod_of(found)["volumes"]}
    assert volumes["oarlock-access"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert server_objects.access(parcel()) == []


def test_a_claim_that_one_node_may_mount_is_read_beside_the_leader() -> None:
    volume: Object = {"name": "oarlock-store", "persistentVolumeClaim": {"claimName": "digits"}}
    mount: Object = {"name": "oarlock-store", "mountPath": "/oarlock/store", "readOnly": True}
    claims = Claims((volume,), (mount,), Identity("digits-abcd", "77"), is_shared=False)
    pod = pod_of(parcel(claims=claims))
    assert mount in pod["containers"][0]["volumeMounts"]
    wished = pod["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    leader = wished[0]["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert (leader[RUN], leader[LEAD]) == ("digits-abcd", "true")
    assert "topologySpreadConstraints" not in pod
    shared = pod_of(parcel(claims=replace(claims, is_shared=True)))
    assert "affinity" not in shared
    assert shared["topologySpreadConstraints"]


def test_the_users_part_of_a_pod_is_merged_and_secrets_of_trainers_are_seen() -> None:
    job = parse(
        {
            "name": "digits",
            "program": "train.py",
            "roles": {"worker": 1, "ps": 1},
            "kubernetes": {
                "secrets": {
                    "bucket": {"env": {"AWS_SECRET_ACCESS_KEY": "key"}},
                    "ps-only": {"variables": True, "roles": ["ps"]},
                },
                "pod": {"dnsPolicy": "None", "containers": [{"name": "main", "tty": True}]},
                "labels": {"team": "vision"},
            },
        }
    )
    found = parcel(job=job)
    container = container_of(found)
    assert (pod_of(found)["dnsPolicy"], container["tty"]) == ("None", True)
    assert [one["name"] for one in container["env"] if "valueFrom" in one] == ["AWS_SECRET_ACCESS_KEY"]
    assert "envFrom" not in container
    labels = server_objects.service(found)["metadata"]["labels"]
    assert (labels["team"], labels[RUN]) == ("vision", "digits-serve")


def test_objects_for_kubectl_are_complete_and_owned_by_nobody() -> None:
    rendered = server_objects.standalone(parcel(model=b"m" * 10))
    kinds = ["ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget", "Deployment"]
    assert [one["kind"] for one in rendered] == kinds
    assert not any("ownerReferences" in one["metadata"] for one in rendered)


def test_a_folder_travels_with_the_chosen_version(tmp_path: Path) -> None:
    folder = model(model(tmp_path / "model"), 2, b"newer")
    found = server_packing.pack(order(folder), "digits-serve")
    with tarfile.open(fileobj=io.BytesIO(found.model)) as archive:
        assert {one.split("/")[0] for one in archive.getnames()} == {"2"}
        weights = archive.extractfile("2/weights")
        assert weights is not None
        assert weights.read() == b"newer"
    assert found.settings.source == "/oarlock/work/model"
    assert (found.settings.host, found.settings.port, found.settings.replicas) == ("0.0.0.0", 8000, 1)
    assert found.image.startswith("pytorch/pytorch:")
    both = server_packing.pack(order(folder, settings={"weights": {1: 0.5, 2: 0.5}}), "digits-serve")
    with tarfile.open(fileobj=io.BytesIO(both.model)) as archive:
        assert {one.split("/")[0] for one in archive.getnames()} == {"1", "2"}


def test_a_folder_that_is_too_large_names_the_other_ways(tmp_path: Path) -> None:
    import random

    folder = model(tmp_path / "model", weights=random.Random(1).randbytes(9 << 20))
    with pytest.raises(JobError) as refused:
        server_packing.pack(order(folder), "digits-serve")
    assert "8 MiB" in str(refused.value)
    assert "claim" in str(refused.value)
    assert "s3://" in str(refused.value)


def test_a_folder_without_a_model_and_a_version_that_is_missing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="holds no exported model"):
        server_packing.pack(order(tmp_path), "digits-serve")
    with pytest.raises(JobError, match="has no version 7; there is 1"):
        server_packing.pack(order(model(tmp_path / "model"), settings={"versions": "7"}), "digits-serve")


def test_a_bucket_needs_obstore_and_no_archive() -> None:
    asked = order(Path("x"))
    asked = replace(asked, settings=replace(asked.settings, source="s3://models/digits"), framework="jax")
    found = server_packing.pack(asked, "digits-serve")
    assert (found.settings.source, found.model) == ("s3://models/digits", b"")
    assert "obstore" in json.loads(found.pod_file)["modules"]
    assert "obstore" not in json.loads(parcel().pod_file)["modules"]


def test_token_and_predict_file_are_read_here(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "predict.py").write_text("def before(inputs): return inputs\n")
    settings = {"token_file": str(tmp_path / "token"), "predict": str(tmp_path / "predict.py")}
    found = server_packing.pack(order(model(tmp_path / "model"), settings=settings), "digits-serve")
    assert found.access == {"token": b"t0ken"}
    assert found.settings.token_file == "/oarlock/secret/token"
    assert found.settings.predict == "/oarlock/code/predict.py"
    assert server_objects.config_maps(found)[0]["data"]["predict.py"].startswith("def before")
    with pytest.raises(JobError, match="cannot be read"):
        server_packing.pack(
            order(model(tmp_path / "other"), settings={"token_file": str(tmp_path / "none")}), "digits-serve"
        )


def rolled(**status: int) -> Object:
    counts = {"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 2}
    return {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": {**counts, **status}}


@pytest.mark.parametrize(
    ("status", "is_done"),
    [
        ({}, True),
        ({"observedGeneration": 1}, False),
        ({"updatedReplicas": 1}, False),
        ({"replicas": 3}, False),
        ({"availableReplicas": 1}, False),
    ],
)
def test_an_update_is_over_when_only_new_pods_are_left_and_all_answer(
    status: dict[str, int], is_done: bool
) -> None:
    assert readiness.is_rolled_out(rolled(**status)) is is_done


def ended(**state: Any) -> Object:
    return {"status": {"containerStatuses": [{"name": "main", **state}]}}


def test_a_pod_that_ended_once_gets_another_chance_and_one_that_ended_twice_does_not() -> None:
    once = ended(restartCount=1, state={"running": {}}, lastState={"terminated": {"exitCode": 1}})
    twice = ended(restartCount=1, state={"waiting": {"reason": "CrashLoopBackOff"}})
    assert not readiness.is_hopeless(once)
    assert readiness.is_hopeless(twice)
    assert readiness.is_hopeless(ended(state={"waiting": {"reason": "ImagePullBackOff"}}))
    words = {"terminated": {"exitCode": 1, "message": "Traceback\noarlock: there is no model in /x\n"}}
    assert readiness.last_words(ended(state=words)) == "there is no model in /x"


def test_counters_of_a_pod_are_added_up() -> None:
    text = """# HELP oarlock_requests_total Requests.
oarlock_requests_total{dialect="tensorflow",code="200"} 40
oarlock_requests_total{dialect="tensorflow",code="400"} 2
oarlock_queue_rows 3
oarlock_request_seconds_sum 1.5
"""
    assert pod_traffic.counts(text) == {"step": 42, "queue": 3}
    assert pod_traffic.counts("nothing of ours") == {}
    assert server_objects.deployment(parcel(), 1)["spec"]["template"]["metadata"]["labels"][ROLE] == "server"


def test_kserve_finds_the_model_on_its_claim_or_in_its_bucket() -> None:
    volume: Object = {"name": "oarlock-store", "persistentVolumeClaim": {"claimName": "digits"}}
    mount: Object = {"name": "oarlock-store", "mountPath": "/oarlock/store", "readOnly": True}
    claims = Claims((volume,), (mount,))
    on_claim = replace(SETTINGS, source="/oarlock/store/runs/digits-abcd/model")
    found = kserve.inference_service(parcel(settings=on_claim, claims=claims), "tensorflow")
    assert (found["apiVersion"], found["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    predictor = found["spec"]["predictor"]
    assert predictor["model"]["storageUri"] == "pvc://digits/runs/digits-abcd/model"
    assert predictor["model"]["modelFormat"] == {"name": "tensorflow"}
    elastic = parcel(settings=replace(SETTINGS, source="s3://b/m"), part=Role(replicas=Replicas(1, 3)))
    predictor = kserve.inference_service(elastic, "onnx")["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 3)
    assert predictor["model"]["storageUri"] == "s3://b/m"
    with pytest.raises(JobError, match="from a claim or a bucket"):
        kserve.inference_service(parcel(), "tensorflow")
    with pytest.raises(JobError, match="and this is torch"):
        kserve.inference_service(elastic, "torch")


def test_the_printed_request_names_the_token_file_of_this_machine() -> None:
    curl = 'curl -H "Authorization: Bearer $(cat /oarlock/secret/token)" http://127.0.0.1:8000/'
    here = replace(SETTINGS, token_file="/home/ann/token").to_json()
    assert server_address.with_files(curl, here) == curl.replace("/oarlock/secret/token", "/home/ann/token")
    assert server_address.with_files(curl, SETTINGS.to_json()) == curl
    assert server_address.with_files(curl, "damaged") == curl
