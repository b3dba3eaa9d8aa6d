"""A loaded model's inputs and outputs, combined with what its manifest says. Pure."""

from __future__ import annotations

from dataclasses import replace

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.runtimes.runtime import ModelError


def merged(written: Manifest, found: Manifest) -> Manifest:
    """Return the manifest with the inputs and outputs that the loaded model really has.

    Raises ModelError if the file contradicts them.
    """
    for which in ("inputs", "outputs"):
        said, real = _by_name(getattr(written, which)), _by_name(getattr(found, which))
        if said and said.keys() != real.keys():
            raise ModelError(f"its oarlock.json does not fit the model, whose {which} are {', '.join(real)}")
        for name in said:
            if said[name].dtype != real[name].dtype:
                raise ModelError(
                    f"its oarlock.json says that {name!r} has the type {said[name].dtype}; "
                    f"in the model it has {real[name].dtype}"
                )
    return replace(written, inputs=found.inputs, outputs=found.outputs)


def _by_name(tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {one.name: one for one in tensors}
