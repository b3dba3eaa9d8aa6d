"""A torch.nn.Module, by torch.export: a program that runs without the code that made it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from oarlock.models.model_manifest import Manifest
from oarlock.models.model_versions import TORCH_PROGRAM
from oarlock.training.exporting import examples
from oarlock.training.exporting.written_model import ExportError, Written, first_line


class TorchProgram:
    """Writes a copy of the model, on the CPU and in evaluation mode; the model itself does not change."""

    is_collective = False

    def __init__(self, model: Any, example: Any) -> None:
        self._model, self._example = model, example

    def write(self, folder: Path) -> Written:
        """See Writer."""
        import torch

        model = _copied(self._model)
        given = examples.named(self._example, model.forward)
        inputs = {name: torch.as_tensor(value).detach().cpu() for name, value in given.items()}
        examples.check_rows(inputs)
        two, three = ({name: _rows(one, count) for name, one in inputs.items()} for count in (2, 3))
        batch = torch.export.Dim("batch", min=1)
        try:
            with torch.no_grad():
                answers = [examples.by_name(model(**some)) for some in (two, three)]
                shapes = {name: {0: batch} for name in two}
                program = torch.export.export(model, (), kwargs=two, dynamic_shapes=shapes)
        except Exception as problem:
            raise ExportError(
                f"torch.export cannot export this {type(self._model).__name__}: {first_line(problem)}\n"
                "Export it as a program instead: oarlock.export('predict.py', files=[...])"
            ) from problem
        torch.export.save(program, folder / TORCH_PROGRAM)
        return Written(
            "torch_export",
            tuple(
                examples.described(name, _dtype(two[name]), [two[name].shape, three[name].shape])
                for name in two
            ),
            tuple(
                examples.described(name, _dtype(one), [one.shape, answers[1][name].shape])
                for name, one in answers[0].items()
            ),
            example={name: one.numpy() for name, one in inputs.items()},
        )

    def finish(self, folder: Path, manifest: Manifest) -> Manifest:
        """See Writer."""
        return manifest


def _copied(model: Any) -> Any:
    model = getattr(model, "_orig_mod", model)  # from torch.compile
    if type(model).__name__ == "DistributedDataParallel":
        model = model.module
    if type(model).__name__ in ("FullyShardedDataParallel", "FSDPModule") or _is_sharded(model):
        raise ExportError(
            "the weights are spread over several workers: gather them into a plain model, and export that one"
        )
    try:
        return copy.deepcopy(model).cpu().eval()
    except Exception as problem:
        raise ExportError(
            f"torch cannot copy this {type(model).__name__}: {first_line(problem)}"
        ) from problem


def _is_sharded(model: Any) -> bool:
    return any(type(one.data).__name__ == "DTensor" for one in model.parameters())


def _rows(array: Any, count: int) -> Any:
    """Two examples, or three: torch.export treats the sizes 0 and 1 specially."""
    repeats = -(-count // array.shape[0])
    return array.repeat(repeats, *[1] * (array.dim() - 1))[:count].contiguous()


def _dtype(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]
