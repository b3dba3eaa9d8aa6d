"""docs/from-the-recipes.md leaves no parameter out, and names only what there is."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

import oarlock
from oarlock.cli.group import VERBS
from oarlock.engines.kubernetes.manifests import groups
from oarlock.job.model import Job, parse, to_data
from oarlock.job.parsing.kinds import Kind
from oarlock.job.parsing.overrides import kind_at, path_of
from oarlock.run.cluster import form
from oarlock.run.contract import FOLDER_VARIABLES, Gang, environment
from tests.support.commands import Command
from tests.support.recipes import HELM, JINJA, RECIPES, STATEFUL_SET, TEXT, TFJOB, job_file, place, section

# What the recipes let their users set, what their programs find and what they create, from their own files.
# In a line with a colon, all names are below the first.
NAMES = {
    JINJA: """
        name image script worker_replicas port model_checkpoint_dir checkpoint_pvc_name create_pvc_checkpoint
        create_volume_inspector deploy
        gcp_credential_secret log_dir data_dir model_dir batch_size num_train_epoch run_tensorboard
        ps_replicas num_gpus_per_worker has_eval has_tensorboard train_dir cmdline_args credential_secret_json
        credential_secret_key has_coordinator use_node_port train_log_dir --use_in_process_cluster
        --job_name --task_index --worker_hosts --ps_hosts --data_dir --train_dir data_service
        TF_CONFIG GOOGLE_APPLICATION_CREDENTIALS DATA_DIR MODEL_DIR NUM_TRAIN_EPOCH BATCH_SIZE
        volume-inspector ttlSecondsAfterFinished credential resnet-tensorboard-0
        """,
    HELM: """
        global: imagePullPolicy services.aws.region services.aws.az services.aws.efs.id
        storage: name accessMode pv.capacity pvc.name pvc.request
        dataLoader: service.name service.command image.repo image.name image.dockerTag
        dataLoader.settings: dataset imagenetUsername imagenetApiKey
        dataImport: isRequired settings.url service.name image.repo image.name image.dockerTag
        tfCluster: deploy service.name service.internalPort service.externalPort service.type
        tfCluster.image: repo name dockerTag dockerTagCpu dockerTagGpu
        tfCluster.settings: dataset isGpu nbGpuPerNode jobs.ps jobs.worker mode
        tfCluster.resources: requests.cpu requests.memory limits.cpu limits.memory
        evaluating: deploy replicaCount service.name service.command
        evaluating.image: repo name dockerTagCpu dockerTagGpu
        evaluating.settings: dataset isGpu nbGpuPerNode
        evaluating.resources: requests.cpu requests.memory limits.cpu limits.memory
        tensorboard: deploy replicaCount image.repo image.name image.dockerTag
        tensorboard.service: name dns type externalPort internalPort command
        tensorboard.resources: requests.cpu requests.memory limits.cpu limits.memory
        serving: deploy replicaCount image.repo image.name image.dockerTag settings.dataset
        serving.service: name dns type externalPort internalPort command
        serving.resources: requests.cpu requests.memory limits.cpu limits.memory
        CLUSTER_CONFIG POD_NAME DATASET DATA_DIR GRPC_VERBOSITY LD_LIBRARY_PATH PORT MODEL_NAME
        MODEL_PATH BATCHING IMAGENET_USERNAME IMAGENET_ACCESS_KEY
        efs dataloader tensorflow-cluster-config <job>-<i> eval tensorboard serving
        """,
    STATEFUL_SET: """
        local_batch_size worker_count cloud_storage_bucket_name cloud_storage_upload_folder
        replicas image imagePullPolicy nvidia.com/gpu terminationGracePeriodSeconds serviceName app
        configuration/gcp-access-key.json saved_weights
        kubernetes_namespace heartbeat_port tensorflow_port verbose execution_strategy() chief()
        THIS_POD_NAME TF_CONFIG tensorflow-training view test.py initial_model weights_snapshot
        """,
    TFJOB: """
        tfReplicaSpecs: Master.replicas Worker.replicas PS.replicas
        restartPolicy backoffLimit containers.name containers.image containers.command volumes volumeMounts
        dataDir dataFile modelDir mountPath pvc numWorkers numPs --max_steps --eval_steps
        --sample_size --num_epochs --learning_rate --input_data --output_model --mode
        --output_body_preprocessor_dpkl --output_title_preprocessor_dpkl
        --output_train_title_vecs_npy --output_train_body_vecs_npy
        name image input_data output_model sample_size num_epochs gcpSecretName gcpSecretFile
        dataUrl dataPath pvcName workers masters ps trainSteps evalSteps workerGpu psGpu sync
        replicas endpoint modelUrl githubToken serviceType --params
        numpy_input_fn model_to_estimator train_and_evaluate
        TF_CONFIG MODEL_FILE TITLE_PP_FILE BODY_PP_FILE data models download download-data data-pvc <name>-tb
        """,
}


class Shape(NamedTuple):
    """What a job file becomes on a cluster."""

    groups: dict[str, int]
    claims: set[str]
    mounts: set[str]
    gpus: int


SHAPES = {
    JINJA: Shape({"lead": 1, "worker": 1}, {"pvc-demo"}, set(), 0),
    HELM: Shape({"lead": 1, "worker": 2, "ps": 1, "evaluator": 1}, {"tensorflow-fs"}, set(), 2),
    STATEFUL_SET: Shape({"lead": 1, "worker": 2}, {"transformer"}, {"/var/secrets/google"}, 3),
    TFJOB: Shape(
        {"lead": 1, "worker": 5, "ps": 3}, {"issues", "issues-data", "issues-model"}, {"/data", "/model"}, 0
    ),
}


def names(recipe: str) -> Iterator[str]:
    for line in NAMES[recipe].splitlines():
        below, colon, rest = line.strip().rpartition(": ")
        yield from (f"{below}.{name}" if colon else name for name in rest.split())


def rows(text: str) -> Iterator[list[str]]:
    """Theirs and ours."""
    for line in re.findall(r"^\|(.*)\|$", text, re.MULTILINE):
        if not line.startswith("---"):
            yield [cell.strip() for cell in line.split("|")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def ours() -> list[str]:
    """All that is quoted, but for what the tables say is the recipes'."""
    plain = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    found = quoted(re.sub(r"^\|.*\|$", "", plain, flags=re.MULTILINE))
    return found + [name for row in rows(plain) for name in quoted(row[1])]


def commands() -> list[str]:
    shown = re.findall(r"^(oarlock .+?)(?: +#.*)?$", TEXT, re.MULTILINE)
    return [*shown, *(name for name in ours() if name.startswith("oarlock "))]


def variables() -> set[str]:
    """All that the contract sets."""
    tasks = form({"chief": 1})
    gang = Gang("run", 1, tasks, {task.name: "127.0.0.1:1" for task in tasks})
    return set(environment(gang, tasks[0], dict.fromkeys(FOLDER_VARIABLES, "/")))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_name_of_a_recipe_is_there(recipe: str) -> None:
    told = {name for row in rows(section(recipe)) for name in quoted(row[0])}
    assert not set(names(recipe)) - told


def test_every_row_says_what_takes_its_place() -> None:
    found = list(rows(TEXT))
    assert len(found) > 100
    for row in found:
        assert len(row) == 2, row
        assert all(row), row


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_job_file_is_valid_and_complete(recipe: str) -> None:
    job = parse(yaml.safe_load(job_file(recipe)))
    assert parse(to_data(job)) == job
    assert parse(to_data(job, full=True)) == job


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_job_file_makes_what_the_recipe_made(recipe: str, oarlock: Command, tmp_path: Path) -> None:
    place(recipe, tmp_path / "job")
    done = oarlock("render", cwd=tmp_path / "job")
    assert done.returncode == 0, done.stderr
    assert _shape(list(yaml.safe_load_all(done.stdout))) == SHAPES[recipe]


@pytest.mark.parametrize("recipe", [HELM, TFJOB])
def test_the_leader_prepares_data_that_all_pods_see(recipe: str) -> None:
    assert groups.ingests_once(parse(yaml.safe_load(job_file(recipe))))


def _shape(objects: list[dict[str, Any]]) -> Shape:
    groups, claims, mounts, gpus = {}, set(), set(), 0
    for one in objects:
        name = one["metadata"]["name"]
        if one["kind"] == "PersistentVolumeClaim":
            claims.add(name)
        elif one["kind"] == "Job":
            count = one["spec"]["completions"]
            [container] = one["spec"]["template"]["spec"]["containers"]
            groups[name.rpartition("-")[2]] = count
            gpus += count * int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
            paths = {mount["mountPath"] for mount in container["volumeMounts"]}
            mounts |= {path for path in paths if not path.startswith(("/oarlock/", "/tmp", "/dev/shm"))}
    return Shape(groups, claims, mounts, gpus)


# Neither fields nor commands of ours.
_OTHERS = re.compile(
    r"job\.yaml|<run>.*|--on kubernetes|python3|fit|tensorboard --.*|tf\.distribute\..*|render_template.*"
)


def test_every_field_variable_and_call_exists() -> None:
    fields = 0
    for name in ours():
        if name.startswith("oarlock ") or _OTHERS.fullmatch(name):
            continue
        if name.startswith("oarlock."):
            eval(name, {"oarlock": oarlock})
        elif name.isupper():
            assert name in variables()
        elif not _is_of_a_recipe(name):
            _check_field(name)
            fields += 1
    assert fields > 100


def _is_of_a_recipe(name: str) -> bool:
    """What the sentence at the head of a part calls the recipe's files."""
    heads = [section(recipe).partition("|")[0] for recipe in RECIPES]
    return any(name in quoted(head) for head in heads)


def _check_field(name: str) -> None:
    path, _, value = name.partition(": ")
    kind = kind_at(Job, path_of(Job, path))  # raises, and says what was probably meant
    if value:
        assert isinstance(kind, Kind), name
        kind.read(yaml.safe_load(value))


@pytest.mark.parametrize("written", commands())
def test_every_command_exists(written: str) -> None:
    _, verb, *words = shlex.split(written.partition(" | ")[0])
    assert verb in VERBS
    command: click.Command = importlib.import_module(f"oarlock.cli.verbs.{verb}").verb
    context = click.Context(command, **command.context_settings)
    given, _, _ = command.make_parser(context).parse_args(words)  # raises for an option that is not there
    for field in given.get("sets", []):
        _check_field(field.partition("=")[0])


def test_what_is_missing_is_said() -> None:
    """Nothing of this is in the model; when it is, its rows are to be written anew."""
    assert "convert" not in VERBS
    assert sum("not yet" in row[1] for row in rows(TEXT)) >= 5
