"""The cache of compiled code is where the spec says, and does not grow for ever."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from oarlock.agent.zygote import compile_cache
from oarlock.engines.shared import specs
from oarlock.job.model import Job


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    spec = replace(specs.resolve(Job(name="mine", program="train.py"), tmp_path, "r1"), cache=str(tmp_path))
    for number in range(5):
        path = tmp_path / "inductor" / str(number) / "kernel.so"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(1000))
        os.utime(path, (100 - number, 100 - number))
    compile_cache.trim(spec, largest=5000)
    assert len(list(tmp_path.rglob("kernel.so"))) == 5
    compile_cache.trim(spec, largest=2500)
    assert sorted(path.parent.name for path in tmp_path.rglob("kernel.so")) == ["0", "1"]


def test_a_kernel_of_triton_goes_whole(tmp_path: Path) -> None:
    """With its group and without its binary, Triton fails to load it: `KeyError: "Unknown key: 'cubin'"`."""
    spec = replace(specs.resolve(Job(name="mine", program="train.py"), tmp_path, "r1"), cache=str(tmp_path))
    for number, folder in enumerate(("triton/OLD", "inductor/triton/0/NEW")):
        for file, used in (("loss.cubin", 10), ("loss.json", 30), ("__grp__loss.json", 50)):
            path = tmp_path / folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(1000))
            os.utime(path, (used + number, used + number))
    compile_cache.trim(spec, largest=5500)
    assert [path.name for path in tmp_path.rglob("*.cubin")] == ["loss.cubin"]
    assert sorted(path.parent.name for path in tmp_path.rglob("*") if path.is_file()) == ["NEW"] * 3


def test_without_a_folder_that_outlives_it_the_run_has_its_own(tmp_path: Path) -> None:
    spec = replace(specs.resolve(Job(name="mine", program="train.py"), tmp_path, "r1"), folder="/record")
    assert compile_cache.variables(spec)["TORCHINDUCTOR_CACHE_DIR"] == "/record/cache/inductor"
    shared = compile_cache.variables(replace(spec, cache="/shared"))
    assert shared["JAX_COMPILATION_CACHE_DIR"] == "/shared/jax"
    assert shared["TRITON_CACHE_DIR"] == "/shared/triton"
