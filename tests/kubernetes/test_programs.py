"""Programs written for other launchers run unchanged on the cluster: two tasks on two nodes each.

They start together, because most of their time is spent waiting for one another's imports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from tests.support import soaking
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import TORCH, Started, all_complete, driving, nodes_of, pods_of
from tests.support.kubernetes.small import SMALL

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
TENSORFLOW = f"tensorflow/tensorflow:{metadata.version('tensorflow-cpu')}"
ROOMY = {**SMALL, "memory": "1500Mi"}  # for a framework
PAIR = {"worker": {"replicas": 2, **ROOMY}}
SERVED = dict.fromkeys(("chief", "worker", "ps", "evaluator"), ROOMY)
IN_SOAK = ("jax_psum", "tf_config")  # test_docs.py trains with TensorFlow on two nodes, too
PATIENCE = 300.0  # seconds; 14 processes import their frameworks on two cores


@pytest.fixture(scope="module")
def runs(
    cluster: Cluster, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Started]]:
    with driving(tmp_path_factory.mktemp("programs"), cluster.user, api) as driver:
        started = {}
        for path in sorted(PROGRAMS.glob("*.py")):
            if path.stem in IN_SOAK and not soaking.IS_SOAK:
                continue
            roles = SERVED if path.stem == "parameter_servers" else PAIR
            name = f"prog-{path.stem.replace('_', '-')}"
            # Servers never end by themselves; the others are given the time to say what they have to say.
            limits = {"restarts": 0, "grace": "3s" if roles is SERVED else "60s"}
            image = {"kubernetes": TORCH} if path.stem.startswith("torch") else {}
            folder = driver.job(path.read_text(), name=name, roles=roles, limits=limits, **image)
            started[path.stem] = driver.start(folder)
        yield started


@pytest.mark.parametrize(
    ("program", "image"),
    soaking.cases(
        [("torch_all_reduce", TORCH["image"])], soak=[("jax_psum", PYTHON), ("tf_config", TENSORFLOW)]
    ),
)
def test_a_collective_over_two_nodes(runs: dict[str, Started], api: Api, program: str, image: str) -> None:
    run = runs[program].succeed(PATIENCE)
    who = "worker" if program == "tf_config" else "rank"
    assert run.lines["worker-0"][-1] == f"{who} 0 of 2: sum 3", run.told
    assert run.lines["worker-1"][-1] == f"{who} 1 of 2: sum 3", run.told
    assert len(nodes_of(api, run.name)) == 2
    images = {pod["spec"]["containers"][0]["image"] for pod in pods_of(api, run.name).values()}
    assert images == {image}


def test_the_addresses_of_cluster_config_are_right(runs: dict[str, Started], api: Api) -> None:
    run = runs["cluster_config"].succeed(PATIENCE)
    answered = f"answered: {run.name}/worker-0 {run.name}/worker-1"
    assert run.lines == {"worker-0": [answered], "worker-1": [answered]}
    assert len(nodes_of(api, run.name)) == 2


def test_parameter_servers_are_stopped_when_the_chief_is_done(runs: dict[str, Started], api: Api) -> None:
    run = runs["parameter_servers"].succeed(PATIENCE)
    assert run.lines["chief-0"][-1] == "counted to 20 on /job:ps", run.told
    assert run.lines["evaluator-0"] == ["the evaluator sees chief ps worker"]
    assert len(nodes_of(api, run.name)) == 2
    jobs = all_complete(api, run.name)
    assert sorted(jobs) == ["evaluator", "lead", "ps", "worker"]


def test_a_program_that_fails_gives_its_code_and_its_last_words_last(runs: dict[str, Started]) -> None:
    run = runs["exit_seven"].end(PATIENCE)
    assert run.code == 7, run.told
    assert "worker-1 | these are my last words" in run.out.splitlines(), run.told
    assert "worker-1: exit code 7\n  | these are my last words\n" in run.err, run.told
