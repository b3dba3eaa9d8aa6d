"""A JAX function, by jax.export: StableHLO that runs without the code that made it, weights included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.models.model_versions import JAX_PROGRAM
from oarlock.training.exporting import examples
from oarlock.training.exporting.written_model import ExportError, Written, first_line, tensor


class JaxProgram:
    """Writes the function and everything it closes over, for any number of examples."""

    is_collective = False

    def __init__(self, function: Any, example: Any) -> None:
        self._function, self._example = function, example

    def write(self, folder: Path) -> Written:
        """See Writer."""
        import jax
        import numpy as np
        from jax import export as jax_export

        given = examples.named(self._example, self._function)
        inputs = {name: np.asarray(one) for name, one in given.items()}
        examples.check_rows(inputs)
        (rows,) = jax_export.symbolic_shape("rows")
        specs = {
            name: jax.ShapeDtypeStruct((rows, *one.shape[1:]), jax.dtypes.canonicalize_dtype(one.dtype))
            for name, one in inputs.items()
        }
        platforms = sorted({"cpu", jax.default_backend().replace("gpu", "cuda")})
        try:
            function = jax.jit(lambda **named: self._function(**named))
            exported = jax_export.export(function, platforms=platforms)(**specs)
            content = exported.serialize()
        except Exception as problem:
            raise ExportError(
                f"jax.export cannot export this function: {first_line(problem)}\n"
                "Give a function of arrays whose first dimension counts the examples, closed over its "
                "weights, or export it as a program: oarlock.export('predict.py', files=[...])"
            ) from problem
        (folder / JAX_PROGRAM).write_bytes(content)
        takes, gives = described(exported)
        return Written("jax_export", takes, gives, example=inputs)

    def finish(self, folder: Path, manifest: Manifest) -> Manifest:
        """See Writer."""
        return manifest


def described(exported: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the inputs and outputs of an exported function. Raises ExportError."""
    import jax

    positional, takes = jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals)
    takes = {**{f"input_{place}": one for place, one in enumerate(positional)}, **takes}
    gives = examples.by_name(jax.tree_util.tree_unflatten(exported.out_tree, exported.out_avals))
    return _tensors(takes), _tensors(gives)


def _tensors(avals: dict[str, Any]) -> tuple[Tensor, ...]:
    found = []
    for name, aval in avals.items():
        if not hasattr(aval, "shape"):
            raise ExportError(f"{name!r} is a {type(aval).__name__}: the function has to give arrays by name")
        sizes = tuple(size if isinstance(size, int) else None for size in aval.shape)
        found.append(tensor(name, str(aval.dtype), sizes))
    return tuple(found)
