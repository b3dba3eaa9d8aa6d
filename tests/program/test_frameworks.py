"""Which framework a program trains with, by its imports; and what the zygote may import before it forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.job.model import parse
from oarlock.program import imports
from oarlock.program.frameworks import detect, framework_of, preimports
from oarlock.program.imports import scan
from tests.support.soaking import cases

DDP = "import torch.distributed as dist\ndist.init_process_group()\n"

PROGRAMS: list[tuple[str, str, str]] = [
    ("plain Python", "import json, sys\nprint('hello')", "none"),
    ("nothing", "", "none"),
    ("TensorFlow", "import tensorflow as tf", "tensorflow"),
    ("a part of TensorFlow", "from tensorflow.python.framework import ops", "tensorflow"),
    ("Keras", "import keras", "tensorflow"),
    ("legacy Keras", "import tf_keras as keras", "tensorflow"),
    ("PyTorch", "import torch", "torch"),
    ("a part of PyTorch", "from torch.nn.parallel import DistributedDataParallel as DDP", "torch"),
    ("JAX", "import jax.numpy as jnp", "jax"),
    *((name, f"import {name}", "jax") for name in ("flax", "optax", "orbax", "equinox", "haiku")),
    ("an import in a function", "def main():\n    import torch\n", "torch"),
    ("an import that may fail", "try:\n    import jax\nexcept ImportError:\n    pass\n", "jax"),
    ("a word in a text", "'import torch'\n# import jax\n", "none"),
    ("another package of a similar name", "import torchlike, jaxtyping, kerastuner", "none"),
    # hints
    *(
        (name, f"import {name}", "torch")
        for name in ("lightning", "transformers", "accelerate", "torchvision")
    ),
    ("transformers with JAX", "import transformers\nimport jax", "jax"),
    ("transformers with TensorFlow", "import transformers\nimport tensorflow", "tensorflow"),
    # several
    ("TensorBoard in PyTorch", "from torch.utils.tensorboard import SummaryWriter", "torch"),
    ("the one that distributes", f"import tensorflow as tf\n{DDP}", "torch"),
    ("its name spelled out", "import tensorflow\nimport torch\ntorch.distributed.barrier()", "torch"),
    ("its name taken", "import tensorflow\nfrom torch import distributed", "torch"),
    ("data by TensorFlow", "import tensorflow as tf\nimport jax\njax.distributed.initialize()", "jax"),
    ("arrays by JAX", "import jax\nimport tensorflow as tf\ns = tf.distribute.Strategy()", "tensorflow"),
    ("the first one", "import jax\nimport torch", "jax"),
    ("the first one, the other way round", "import torch\nimport jax", "torch"),
    ("the top before a function", "def f():\n    import jax\nimport torch", "torch"),
    # Keras' backends
    ("Keras on JAX", "import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras", "jax"),
    ("Keras on PyTorch", "import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport keras", "torch"),
    ("Keras on something else", "import os\nos.environ['KERAS_BACKEND'] = 'openvino'\nimport keras", "none"),
    ("another variable", "import os\nos.environ['BACKEND'] = 'jax'\nimport keras", "tensorflow"),
    ("Keras by Oarlock", "from oarlock import keras", "tensorflow"),
    # what cannot be read
    ("a syntax error", "import torch\nthis is no Python", "none"),
    ("a NUL", "import torch\0", "none"),
    ("no end of brackets", "(" * 5000, "none"),
    ("an invalid escape", "import torch\nx = '\\d'", "torch"),
]


@pytest.mark.parametrize(("what", "program", "framework"), PROGRAMS, ids=[what for what, _, _ in PROGRAMS])
def test_the_imports_of_a_program_say_its_framework(
    tmp_path: Path, what: str, program: str, framework: str
) -> None:
    (tmp_path / "train.py").write_text(program)
    assert detect(tmp_path, "train.py", None) == framework


@pytest.mark.parametrize(
    ("backend", "framework"), [("torch", "torch"), ("jax", "jax"), ("tensorflow", "tensorflow")]
)
def test_the_job_s_environment_says_what_keras_runs_on(tmp_path: Path, backend: str, framework: str) -> None:
    (tmp_path / "train.py").write_text("import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras")
    assert detect(tmp_path, "train.py", None, {"KERAS_BACKEND": backend}) == framework


def test_a_program_for_any_backend_of_keras_goes_by_the_job_s_environment(tmp_path: Path) -> None:
    program = "import keras\ndef workers():\n    import tensorflow as tf\n    return tf.distribute.Strategy()"
    (tmp_path / "train.py").write_text(program)
    assert detect(tmp_path, "train.py", None, {"KERAS_BACKEND": "jax"}) == "jax"
    assert detect(tmp_path, "train.py", None) == "tensorflow"


FOLDERS: list[tuple[str, dict[str, str], str]] = [
    ("a module", {"train.py": "import model", "model.py": "import torch"}, "torch"),
    ("a name from a package", {"train.py": "from nets import cnn", "nets/cnn.py": "import torch"}, "torch"),
    ("a package", {"train.py": "import a.b", "a/__init__.py": "import jax", "a/b.py": ""}, "jax"),
    ("relative imports",
     {"train.py": "import a.b.c", "a/b/c.py": "from ..d import x", "a/d.py": "from . import e",
      "a/e.py": "import jax"},
     "jax"),
    ("imports in a circle", {"train.py": "import a", "a.py": "import b", "b.py": "import a, torch"}, "torch"),
    ("a module not imported", {"train.py": "import a", "a.py": "", "b.py": "import torch"}, "none"),
    ("a module of the framework's name", {"train.py": "import torch", "torch.py": "import jax"}, "jax"),
    ("a folder of the framework's name", {"train.py": "import torch", "torch/weights.bin": ""}, "torch"),
    ("the program before its modules", {"train.py": "import a\nimport torch", "a.py": "import jax"}, "torch"),
    ("too many dots", {"train.py": "from ............................................... import x"}, "none"),
    ("a module with a syntax error", {"train.py": "import a\nimport torch", "a.py": "import jax ("}, "torch"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "files", "framework"), FOLDERS, ids=[what for what, _, _ in FOLDERS])
def test_the_program_s_own_modules_count(
    tmp_path: Path, what: str, files: dict[str, str], framework: str
) -> None:
    write(tmp_path, files)
    assert detect(tmp_path, "train.py", None) == framework


def test_modules_beside_the_program_and_in_the_folder_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"code/train.py": "import beside, above", "code/beside.py": "import numpy", "above.py": "import jax"},
    )
    assert scan(tmp_path, "code/train.py").modules == ("numpy", "jax")


@pytest.mark.parametrize(
    ("job", "framework"),
    [
        ({"module": "package"}, "torch"),
        ({"module": "package.more"}, "jax"),
        ({"module": "elsewhere.train"}, "none"),
        ({"module": "accelerate.commands.launch"}, "torch"),  # installed; its name says it
        ({"module": "package.alone"}, "none"),  # python -m does not look beside the module
        ({"command": ["python3", "-m", "package"]}, "torch"),
        ({"command": "/usr/bin/python train.py --x"}, "tensorflow"),
        ({"command": "python"}, "none"),
        ({"command": "sh train.py"}, "none"),
        ({"program": "train.py"}, "tensorflow"),
        ({"program": "train.py", "env": {"KERAS_BACKEND": "jax"}}, "jax"),
        ({"program": "train.py", "framework": "none"}, "none"),
    ],
)
def test_a_job_s_framework(tmp_path: Path, job: dict[str, object], framework: str) -> None:
    write(tmp_path, {"package/__main__.py": "import torch", "package/more.py": "import jax"})
    write(tmp_path, {"package/alone.py": "import more", "train.py": "import keras"})
    assert framework_of(parse(job), tmp_path) == framework


def test_looking_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MOST_FILES", 20)
    write(tmp_path, {f"m{n}.py": f"import m{n + 1}\nimport seen{n}" for n in range(100)})
    assert len(scan(tmp_path, "m0.py").modules) == 20
    write(tmp_path, {"big.py": "import torch\n" + "#" * imports.LARGEST_FILE})
    assert scan(tmp_path, "big.py").modules == ()


@pytest.mark.parametrize(
    ("framework", "imported", "expected"),
    [
        ("none", ["numpy", "torch"], []),
        ("torch", [], ["torch", "torch._dynamo"]),
        (
            "torch",
            ["torch.nn", "numpy.random", "torchvision", "mymodule"],
            ["torch", "torch._dynamo", "numpy"],
        ),
        ("jax", ["jax", "flax", "optax.adam"], ["jax", "jax.numpy", "flax", "optax"]),
        ("jax", ["orbax.checkpoint"], ["jax", "jax.numpy", "orbax.checkpoint"]),
        ("torch", ["lightning.pytorch", "flax"], ["torch", "torch._dynamo", "lightning"]),
        ("torch", ["transformers.AutoModel"], ["torch", "torch._dynamo", "transformers"]),
        (
            "torch",
            ["transformers.Seq2SeqTrainer", "accelerate.Accelerator"],
            ["torch", "torch._dynamo", "accelerate", "transformers", "transformers.trainer"],
        ),
        ("tensorflow", [], ["tensorflow", "keras"]),
        ("tensorflow", ["tensorflow", "numpy"], ["tensorflow", "keras", "numpy"]),
        ("tensorflow", ["tf_keras.layers"], ["tensorflow", "tf_keras"]),
        ("tensorflow", ["tf_keras", "keras"], ["tensorflow", "keras", "tf_keras"]),
    ],
)
def test_what_the_zygote_imports(framework: str, imported: list[str], expected: list[str]) -> None:
    assert preimports(framework, imported) == expected


def test_a_lone_trainer_does_not_wait_for_the_compiler() -> None:
    assert preimports("torch", ["numpy"], alone=True) == ["torch", "numpy"]
    assert preimports("tensorflow", [], alone=True) == ["tensorflow", "keras"]


FORK = """
import importlib, os, sys
for name in {modules}:
    importlib.import_module(name)
assert "torch._inductor.compile_fx" not in sys.modules  # it would start CUDA
torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
assert torch is None or not torch.cuda.is_initialized()
assert jax is None or not jax._src.xla_bridge._backends
before = set(sys.modules)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
{step}
new = set(sys.modules) - before
assert len(new) < 20, sorted(new)
"""
STEPS = {
    "torch": """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(3, 4)).sum().backward()
optimizer.step()
""",
    "jax": """
import jax, jax.numpy as jnp
jax.jit(jax.grad(lambda w: jnp.tanh(w).sum()))(jnp.ones(3)).block_until_ready()
""",
    "tensorflow": """
import keras, numpy
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
model.compile("adam", "mse")
model.fit(numpy.ones((8, 4)), numpy.ones((8, 2)), verbose=0)
""",
}


@pytest.mark.parametrize("framework", cases(["jax"], soak=["torch", "tensorflow"]))
def test_a_forked_task_takes_its_first_step_with_almost_nothing_left_to_import(framework: str) -> None:
    """And what was imported before the fork started no backend, so the step works in the child."""
    program = FORK.format(modules=preimports(framework), step=STEPS[framework])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
