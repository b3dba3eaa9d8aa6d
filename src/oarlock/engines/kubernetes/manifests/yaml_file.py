"""A run as a file for `kubectl apply`, which does not need Oarlock. Calls no cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import yaml

from oarlock import __version__
from oarlock.engines.kubernetes.api.names import Object, selecting
from oarlock.engines.kubernetes.manifests import objects, packing
from oarlock.engines.kubernetes.manifests.payload import PART, Parcel
from oarlock.job.job_file import JobFile

# kubectl writes what it applies into an annotation, and all annotations of an object together may have
# 256 KiB. Base64 makes four bytes of three.
_ANNOTATION = 256 * 1024
PIECE = 180 * 1024
# Deleted by the run's label; the pods go with their Jobs, and claims do not carry it.
_KINDS = "job,service,networkpolicy,configmap,secret"


class KubectlFile(NamedTuple):
    """Objects in the order in which `kubectl apply` has to create them, and what to know about them."""

    preface: str
    objects: list[Object]

    @property
    def text(self) -> str:
        """The file."""
        written: str = yaml.dump_all(
            self.objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True, width=110
        )
        return self.preface + written


def render(jobfile: JobFile, run: str) -> KubectlFile:
    """Pack a run, with a new token, and cut so that a plain `kubectl apply` accepts it if possible."""
    parcel = packing.pack(jobfile, run, part=PIECE)
    head = len(parcel.agent) + len(parcel.spec.encode()) + len(parcel.written.encode())
    if head >= PIECE:
        parcel = replace(parcel, part=PART)
    namespace = jobfile.job.kubernetes.namespace
    made = [placed(one, namespace) for one in objects.standalone(parcel)]
    return KubectlFile(_preface(parcel, apply(made)), made)


def apply(made: Sequence[Object]) -> str:
    """The command that takes them: a plain one writes each object into an annotation."""
    fits = all(len(json.dumps(one)) < _ANNOTATION for one in made)
    return "apply -f" if fits else "apply --server-side -f"


def placed(manifest: Object, namespace: str | None) -> Object:
    """The manifest in a namespace; None leaves that to kubectl."""
    if namespace is None:
        return manifest
    return {**manifest, "metadata": {"namespace": namespace, **manifest["metadata"]}}


def _preface(parcel: Parcel, apply: str) -> str:
    """The commands to start, follow and remove the run."""
    run, settings = parcel.run, parcel.job.kubernetes
    kubectl = "kubectl"
    kubectl += f" --context '{settings.context}'" if settings.context else ""
    kubectl += f" -n {settings.namespace}" if settings.namespace else ""
    lines = [
        f"Run {run} of job {parcel.job.name}, by Oarlock {__version__}. It trains as soon as it is applied,",
        "and supervises itself. Keep this file to yourself: the Secret in it holds the run's token, made for",
        "this rendering, and whoever has it can take part in the run. For another run, render again.",
        "",
        f"start    {kubectl} {apply} FILE",
        f"follow   {kubectl} logs -f job/{parcel.name_of(parcel.leader)}   # once its pod runs",
        f"remove   {kubectl} delete {_KINDS} -l {selecting(run)}",
    ]
    for claim in objects.claims(parcel):
        name = claim["metadata"]["name"]
        lines.append(f"         which keeps the claim {name}: {kubectl} delete pvc {name}")
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes YAML as kubectl reads it, which differs from what PyYAML writes for."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    if "\n" in text:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    # `1e3` and `y` are text to PyYAML, but a number and a boolean to kubectl.
    is_word = re.match("[A-Za-z/].", text) is not None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_word else '"')


_Dumper.add_representer(str, _text)
