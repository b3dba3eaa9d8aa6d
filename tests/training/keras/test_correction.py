"""What Keras 3's fit, evaluate and predict give with several workers, compared with one process.

Starting TensorFlow costs seconds, so each size of gang imports it once (programs/forked_tasks.py) and goes
through all its cases (programs/keras_cases.py); the tests then say what must hold of each. The process alone
runs Keras as it was installed, so that the workers are held against Keras itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import oarlock
from tests.support import soaking
from tests.support.ports import free_ports
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parents[1] / "programs"
SOURCE = Path(oarlock.__file__).parents[1]

UNEVEN = soaking.cases(["uneven_257", "uneven_everything"], soak=["uneven_250"])
IN_EVERY_GANG = ["arrays", "own_batches", *UNEVEN, "sharding_switched_off"]
RIGHT = soaking.cases(
    [
        "predicted_without_compiling",
        "tf_data",
        "shuffled",
        "masked",
        "uneven_own_train_step",
        "overflow_on_one_worker",
        "legacy_keras",
    ],
    soak=[
        "own_batches_of_different_size",
        "tf_data_sharded_by_data",
        "own_batches_with_class_weight",
        "clipped",
        "loss_of_one_number",
        "loss_over_sample_weights",
        "backed_up_and_interrupted",
        "compiled_outside_the_scope",
    ],
)
SEVERAL_STEPS, XLA = "several_steps_per_execution", "xla"
EXECUTED = soaking.cases([SEVERAL_STEPS], soak=[XLA])
ODD = ["unknown_length", "unknown_length_uneven", *EXECUTED]
ODD_FOR_WORKERS = ["normalized_with_an_empty_worker", "shuffled_without_a_seed"]
REFUSED = [
    "distributed_with_sharding_switched_off",
    "validation_sharding_switched_off",
    "gradient_accumulation",
    "optimizer_from_outside_the_scope",
    "metric_from_outside_the_scope",
]
AS_KERAS = soaking.cases(["uneven_257", SEVERAL_STEPS], soak=["arrays", XLA])
CORRECTED = [*AS_KERAS, "unknown_length", "unknown_length_uneven"]
MIRRORED = soaking.cases(["uneven_257"], soak=["clipped"])

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gang, Gang]]:
    """The process alone and the two workers, which take as long as each other and so run side by side."""
    one = tmp_path_factory.mktemp("alone")
    cases = [*IN_EVERY_GANG[:-1], *RIGHT, ODD[0], *EXECUTED, "install", *CORRECTED, "mirrored", *MIRRORED]
    with start(one, {}, "keras_cases.py", cases) as alone:
        two = tmp_path_factory.mktemp("two")
        cases = [*IN_EVERY_GANG, *RIGHT, *ODD, *ODD_FOR_WORKERS, *REFUSED]
        with start(two, {"worker": 2}, "keras_cases.py", cases) as workers:
            yield alone, workers


@pytest.fixture(scope="module")
def alone(running: tuple[Gang, Gang]) -> Results:
    """One process: Keras as installed, then corrected, then corrected with two replicas in the process."""
    return running[0].results()[0]


@pytest.fixture(scope="module")
def two(running: tuple[Gang, Gang]) -> list[Results]:
    return running[1].results()


@pytest.fixture(scope="module")
def four(two: list[Results], tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    with start(tmp_path_factory.mktemp("four"), {"worker": 4}, "keras_cases.py", IN_EVERY_GANG) as gang:
        return gang.results()


class Gang(NamedTuple):
    """Tasks that write what they found into `folder`, one file for each, and their parent."""

    folder: Path
    parent: subprocess.Popen[bytes]
    size: int

    def wait(self, leaving: int = 0, seconds: float = 500) -> None:
        """Until all but the last `leaving` ended well; one that fails ends it, as the others wait for it."""

        def have_ended() -> bool:
            is_alive = self.parent.poll() is None
            codes = {path.stem: path.read_text() for path in self.folder.glob("*.code")}
            assert set(codes.values()) <= {"0"}, f"{codes}\n{self.last_words()}"
            left = {str(number) for number in range(self.size - leaving)} - codes.keys()
            assert is_alive or not left, f"nobody runs {left}\n{self.last_words()}"
            return not left

        eventually(have_ended, "end of the tasks", seconds, every=0.1, evidence=self.last_words)

    def results(self) -> list[Results]:
        self.wait()
        found = [self.folder / f"{number}.pickle" for number in range(self.size)]
        return [pickle.loads(path.read_bytes()) for path in found]

    def last_words(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)


@contextlib.contextmanager
def start(folder: Path, cluster: dict[str, int], program: str, cases: list[str]) -> Iterator[Gang]:
    """A process for each task of the cluster on free ports of this machine; none is left at the end."""
    tasks = [(role, index) for role, count in cluster.items() for index in range(count)] or [("alone", 0)]
    ports = iter(free_ports(sum(cluster.values())))
    addresses = {role: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for role, n in cluster.items()}
    orders = []
    for number, (role, index) in enumerate(tasks):
        config = {"cluster": addresses, "task": {"type": role, "index": index}}
        orders.append(
            {
                "words": [str(folder / f"{number}.pickle"), *cases],
                "environ": {"TF_CONFIG": json.dumps(config)} if cluster else {},
                "log": str(folder / f"{role}-{index}.log"),
                "code": str(folder / f"{number}.code"),
            }
        )
    with (folder / "parent.log").open("wb") as log:
        parent = subprocess.Popen(
            [sys.executable, PROGRAMS / "forked_tasks.py", PROGRAMS / program, json.dumps(orders)],
            env=quiet_environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Gang(folder, parent, len(tasks))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait(300)


def quiet_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "KERAS_BACKEND")}
    return {
        **kept,
        "PYTHONPATH": str(SOURCE),
        "CUDA_VISIBLE_DEVICES": "-1",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }


def run_program(folder: Path, program: str, *words: str, **environment: str) -> None:
    """Run a short program from a file, as what is not in one has no source to look at."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, path, *words],
        env={**quiet_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def assert_same(expected: dict[str, Any], got: dict[str, Any], tolerance: float = 1e-6) -> None:
    """All numbers agree: weights closely, and metrics, which are sums of many, nearly so."""
    assert "refused" not in got, got["refused"]
    assert got.keys() == expected.keys()
    for name in expected.keys() - {"said"}:
        allowed = tolerance if name == "weights" else 1e-5
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=allowed, err_msg=name)


@pytest.fixture(params=soaking.cases(["two"], soak=["four"]))  # test_elastic.py has three
def gang(request: pytest.FixtureRequest) -> list[Results]:
    results: list[Results] = request.getfixturevalue(request.param)
    return results


def test_fit_evaluate_and_predict_give_what_one_process_gives(alone: Results, gang: list[Results]) -> None:
    assert alone["arrays"]["iterations"] == 50
    assert np.abs(alone["arrays"]["weights"] - alone["arrays"]["before"]).max() > 0.3
    assert_same(alone["arrays"], gang[0]["arrays"])


@soaking.only_in_soak  # test_elastic.py scales a fit to one worker
def test_a_gang_of_one_gives_what_one_process_gives(alone: Results, tmp_path: Path) -> None:
    with start(tmp_path, {"worker": 1}, "keras_cases.py", ["arrays", "uneven_257", "own_batches"]) as gang:
        (one,) = gang.results()
    for case, got in one.items():
        assert_same(alone[case], got)


def test_all_workers_end_with_the_same_numbers(gang: list[Results]) -> None:
    for case in ("arrays", "uneven_257", "uneven_everything"):
        for other in gang[1:]:
            for name in gang[0][case].keys() - {"said"}:
                np.testing.assert_array_equal(
                    other[case][name], gang[0][case][name], err_msg=f"{case} {name}"
                )


def test_workers_may_bring_their_own_part_of_the_batch(alone: Results, gang: list[Results]) -> None:
    assert_same(alone["own_batches"], gang[0]["own_batches"])


@pytest.mark.parametrize("case", UNEVEN)
def test_uneven_last_batch_gives_the_weights_of_one_process(
    alone: Results, gang: list[Results], case: str
) -> None:
    assert_same(alone[case], gang[0][case])


@pytest.mark.parametrize("case", MIRRORED)
def test_replicas_in_one_process_give_what_one_gives_too(alone: Results, case: str) -> None:
    assert_same(alone[case], alone[f"mirrored {case}"])


@pytest.mark.parametrize("case", RIGHT)
def test_two_workers_give_what_one_process_gives(alone: Results, two: list[Results], case: str) -> None:
    assert_same(alone[case], two[0][case])
    assert two[0][case]["said"] == []


def test_an_overflow_on_one_worker_is_an_overflow_for_all(alone: Results, two: list[Results]) -> None:
    assert np.isfinite(alone["overflow_on_one_worker"]["weights"]).all()
    assert two[1]["overflow_on_one_worker"]["scale"] == alone["overflow_on_one_worker"]["scale"] == 2.0**14


@pytest.mark.parametrize("result", ["alone, corrected", "two workers"])
def test_a_dataset_of_unknown_length_counts_its_steps_and_no_more(
    alone: Results, two: list[Results], result: str
) -> None:
    assert alone["unknown_length"]["iterations"] == 18, "Keras has mended this: the correction can go"
    got = two[0]["unknown_length"] if result == "two workers" else alone["corrected unknown_length"]
    assert got["iterations"] == got["seed"] == 16
    assert_same(alone["corrected unknown_length_uneven"], two[0]["unknown_length_uneven"])


@pytest.mark.parametrize("case", AS_KERAS)
def test_one_process_gets_bit_for_bit_what_keras_gives(alone: Results, case: str) -> None:
    for name, value in alone[case].items():
        np.testing.assert_array_equal(alone[f"corrected {case}"][name], value, err_msg=name)


def test_steps_per_execution_runs_as_one_and_says_so(alone: Results, two: list[Results]) -> None:
    got = two[0]["several_steps_per_execution"]
    assert got["said"] == [
        "oarlock: steps_per_execution=4 does not work with several workers, so each execution runs one step"
    ]
    one_by_one = {**alone["tf_data"], "predicted": alone["several_steps_per_execution"]["predicted"]}
    assert_same({k: v for k, v in one_by_one.items() if not k.startswith("val_")}, got)


@soaking.only_in_soak
def test_xla_is_left_out_on_cpus_and_says_so(alone: Results, two: list[Results]) -> None:
    assert_same(alone["xla"], two[0]["xla"], tolerance=1e-5)
    assert two[0]["xla"]["said"] == [
        "oarlock: jit_compile=True does not work with several workers on CPUs, so the model runs without XLA"
    ]


def test_a_worker_without_rows_keeps_its_statistics_and_the_other_says_what_differs(
    two: list[Results],
) -> None:
    for result in two:
        assert np.isfinite(result["normalized_with_an_empty_worker"]["weights"]).all()
        assert result["normalized_with_an_empty_worker"]["said"] == [
            "oarlock: the moving statistics of norm differ between workers, so an exported or restored model"
            " depends on which worker saved it: write BatchNormalization(synchronized=True)"
        ]


def test_shuffling_without_a_seed_says_what_it_does(two: list[Results]) -> None:
    assert two[0]["shuffled"]["said"] == []
    assert two[0]["shuffled_without_a_seed"]["said"] == [
        "oarlock: without a seed every worker shuffles in its own order, so an epoch repeats some rows and"
        " misses others: call keras.utils.set_random_seed(n) with the same n on all workers"
    ]


OFF = (
    "a tf.data dataset with AutoShardPolicy.OFF makes every worker train on the same part of each batch:"
    " batch by the global batch size and leave the policy at AUTO or DATA, or give each worker its own"
    " batches with strategy.distribute_datasets_from_function"
)


def test_a_dataset_that_is_not_sharded_is_refused(gang: list[Results]) -> None:
    assert gang[0]["sharding_switched_off"]["refused"] == OFF


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("distributed_with_sharding_switched_off", OFF),
        ("validation_sharding_switched_off", OFF),
        (
            "gradient_accumulation",
            "gradient_accumulation_steps=2 does not work with several workers in Keras 3:"
            " multiply the batch size by 2 instead, or write a custom training loop",
        ),
        (
            "optimizer_from_outside_the_scope",
            "the optimizer mine was created outside strategy.scope(), so the workers would not share its"
            " state: create it inside the scope",
        ),
        (
            "metric_from_outside_the_scope",
            "the metric mine was created outside strategy.scope(), so it would count the rows of one worker"
            " only: create it inside the scope",
        ),
    ],
)
def test_what_cannot_be_right_is_refused_by_every_worker(
    two: list[Results], case: str, sentence: str
) -> None:
    assert [result[case].get("refused") for result in two] == [sentence, sentence]


@soaking.only_in_soak
def test_fit_with_parameter_servers_learns_as_one_process_does_and_counts_every_example(
    tmp_path: Path,
) -> None:
    with start(tmp_path, {"chief": 1, "worker": 2, "ps": 1}, "parameter_servers.py", ["5"]) as gang:  # seeds
        gang.wait(leaving=3)
    found = pickle.loads((tmp_path / "0.pickle").read_bytes())
    assert (found["iterations"], found["weight"]) == (400, -400.0)
    for fit in found["fits"]:
        for one in fit.values():
            assert (one["steps"], one["iterations"]) == (4 * 20, 4 * 20)
            assert one["rows"] == one["val_rows"] == [197.0] * 4
            assert one["evaluated"][-1] == 197.0
            assert one["predicted"] == pytest.approx(one["val_accuracy"][-1])
        assert fit["alone"].keys() == fit["served"].keys()
    _compare_losses(found["fits"])


def _compare_losses(fits: list[dict[str, Any]]) -> None:
    """Over several fits, for two workers that train at once never make the same steps twice."""
    losses = {kind: np.array([fit[kind]["loss"] for fit in fits]) for kind in ("alone", "served")}
    print("loss of each epoch", losses)
    # Two workers train at once, so a step misses what the other is about to add: a little behind, no more.
    noise = losses["alone"].std(0).max()
    assert np.abs(losses["alone"].mean(0) - losses["served"].mean(0)).max() < max(noise, 0.1)
    assert (losses["served"][:, -1] < losses["served"][:, 0] / 2).all()


MENDED = """
import keras
from keras.src.backend.tensorflow import trainer

def mended(values, strategy, reduction):
    raise NotImplementedError

trainer.reduce_per_replica = mended
from oarlock.training.keras import correction
correction.install()
assert trainer.reduce_per_replica is mended
fit = trainer.TensorFlowTrainer.fit
assert fit.corrected_by_oarlock
correction._correct(trainer)
assert trainer.TensorFlowTrainer.fit is fit
print("once")
"""
UNKNOWN = """
import warnings
from types import SimpleNamespace
import keras
from keras.src.backend.tensorflow import trainer

del trainer.TensorFlowTrainer._make_function
trainer.TensorFlowTrainer.fit = lambda model: "fitted"
keras.__version__ = "4.2.0"
before = dict(vars(trainer.TensorFlowTrainer)), dict(vars(trainer))
from oarlock.training.keras import correction
correction.install()
assert before == (dict(vars(trainer.TensorFlowTrainer)), dict(vars(trainer)))

warnings.showwarning = lambda message, *rest: print(message)
model = keras.Sequential()
assert model.fit() == "fitted"
print("several workers:")
extended = SimpleNamespace(worker_devices=["CPU:0"])
model._distribute_strategy = SimpleNamespace(num_replicas_in_sync=2, extended=extended)
assert model.fit() == model.fit() == "fitted"
"""
ADAM = """
import warnings
import keras
from oarlock.training.keras import served_fit

def said(optimizer):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with served_fit.serving(model):
            pass
    return [str(one.message) for one in caught]

[sentence] = said(keras.optimizers.Adam())
assert sentence.startswith("oarlock: Adam with epsilon=1e-07 may explode on parameter servers")
assert said(keras.optimizers.Adam(epsilon=1e-3)) == said(keras.optimizers.Adagrad()) == []
print("Adam alone")
"""
# Each in a fork of one process, which imports Keras for all of them.
FORKS = """
import os, runpy, sys, traceback
import keras
for path in sys.argv[1:]:
    if os.fork() == 0:
        os.dup2(os.open(path + ".said", os.O_WRONLY | os.O_CREAT), 1)
        try:
            runpy.run_path(path)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("forks")
    programs = {"mended": MENDED, "unknown": UNKNOWN, "adam": ADAM}
    for name, program in programs.items():
        (folder / name).write_text(program)
    run_program(folder, FORKS, *(str(folder / name) for name in programs))
    return {name: (folder / f"{name}.said").read_text().splitlines() for name in programs}


@soaking.only_in_soak
def test_a_fault_that_keras_has_mended_is_left_alone_and_the_rest_corrected_once(
    said: dict[str, list[str]],
) -> None:
    assert said["mended"] == ["once"]


def test_an_unknown_keras_is_left_alone_and_speaks_up_only_when_several_workers_train(
    said: dict[str, list[str]],
) -> None:
    assert said["unknown"] == [
        "several workers:",
        "oarlock: fit of Keras 4.2.0 is not known to be correct with several workers: install"
        " keras>=3.14,<3.16, or compare the weights with those of one worker",
    ]


def test_adam_with_the_usual_epsilon_is_warned_about_on_parameter_servers(said: dict[str, list[str]]) -> None:
    assert said["adam"] == ["Adam alone"]


def test_installing_imports_no_framework_and_other_backends_are_not_touched(tmp_path: Path) -> None:
    program = """
        import sys
        import oarlock.training.keras.correction as correction
        correction.install()
        assert not {"tensorflow", "keras", "numpy", "jax", "torch"} & set(sys.modules)
        import keras
        assert keras.backend.backend() == "jax"
        assert not {"tensorflow", "torch"} & set(sys.modules)
        ours = sys.modules["oarlock.training.keras"].__path__[0]
        assert not keras.Model.fit.__code__.co_filename.startswith(ours)
    """
    run_program(tmp_path, program, KERAS_BACKEND="jax")
