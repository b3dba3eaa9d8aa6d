"""A torch.export program.

torch.compile is not tried: it needs a C++ compiler and a minute or more in each process.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.models.model_versions import TORCH_PROGRAM
from oarlock.serving.runtimes import descriptions
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.training.exporting import examples
from oarlock.training.exporting.written_model import ExportError, first_line, tensor

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


def load(folder: Path, manifest: Manifest, threads: int) -> TorchExport:
    """Load the program in a folder. Raises ModelError."""
    import torch

    torch.set_num_threads(threads)
    path = folder / TORCH_PROGRAM
    if not path.exists():
        raise ModelError(f"{path} is missing")
    try:
        program = torch.export.load(path)
    except Exception as problem:
        raise ModelError(f"torch cannot load {path}: {first_line(problem)}") from problem
    try:
        found = replace(manifest, inputs=_inputs(program), outputs=manifest.outputs or _outputs(program))
    except ExportError as problem:
        raise ModelError(str(problem)) from None
    return TorchExport(descriptions.merged(manifest, found), _module(program))


def _module(program: Any) -> Any:
    """Without shape checks before each call: the inputs have been compared with the manifest."""
    can_skip = "check_guards" in inspect.signature(program.module).parameters
    return program.module(check_guards=False) if can_skip else program.module()


def _inputs(program: Any) -> tuple[Tensor, ...]:
    wanted = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return tuple(_tensor(name, nodes[name].meta["val"]) for name in wanted)


def _outputs(program: Any) -> tuple[Tensor, ...]:
    """Their names are in the tree of the program's return value."""
    import torch

    nodes = {node.name: node for node in program.graph.nodes}
    values = [nodes[name].meta["val"] for name in program.graph_signature.user_outputs]
    named = examples.by_name(torch.utils._pytree.tree_unflatten(values, program.call_spec.out_spec))
    return tuple(_tensor(name, value) for name, value in named.items())


def _tensor(name: str, value: Any) -> Tensor:
    if not hasattr(value, "dtype"):
        raise ExportError(f"{name!r} is not an array")
    sizes = tuple(size if type(size) is int else None for size in value.shape)
    return tensor(name, str(value.dtype).rpartition(".")[2], sizes)


class TorchExport:
    """Calls the program with tensors that share the memory of the arrays."""

    form = "torch.export"
    only_computes = False  # it may have custom operators

    def __init__(self, manifest: Manifest, module: Any) -> None:
        import torch

        self.manifest = manifest
        self._module: Any = module
        self._torch = torch

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See Runtime."""
        import numpy as np

        torch = self._torch
        try:
            tensors = {
                name: torch.from_numpy(np.require(one, requirements=["C", "W"]))
                for name, one in inputs.items()
            }
            with torch.inference_mode():
                outputs = examples.by_name(self._module(**tensors))
            return {name: one.numpy() for name, one in outputs.items()}
        except Exception as problem:
            raise ModelError(f"the model refuses these inputs: {first_line(problem)}") from None

    def close(self) -> None:
        """See Runtime."""
        self._module = None
