"""A served model as a file for `kubectl apply`: its own objects, or KServe's. Asks no cluster."""

from __future__ import annotations

import secrets

from oarlock import __version__
from oarlock.engines.kubernetes.api.names import selecting
from oarlock.engines.kubernetes.deployments import kserve, serve_model, server_objects, server_packing
from oarlock.engines.kubernetes.deployments.server_parcel import PORT
from oarlock.engines.kubernetes.manifests import yaml_file
from oarlock.engines.kubernetes.manifests.yaml_file import KubectlFile
from oarlock.engines.shared.serve_order import ServeOrder

_KINDS = ",".join(
    ("deployment", *(kind.lower() for kind in (*server_objects.STANDING[:-1], *server_objects.OWN)))
)


def deployment(order: ServeOrder, name: str | None) -> KubectlFile:
    """The Deployment and all that it needs; `oarlock` finds it like one that it created."""
    run = serve_model.name_of(order, name)
    parcel = server_packing.pack(order, run, piece=yaml_file.PIECE, id=secrets.token_hex(8))
    space = order.job.kubernetes.namespace
    objects = [yaml_file.placed(one, space) for one in server_objects.standalone(parcel)]
    kubectl = "kubectl" + (f" -n {space}" if space else "")
    lines = [
        f"{run}: the model {parcel.settings.name}, by Oarlock {__version__}. It serves once it is applied.",
        *(["Keep this file to yourself: the Secret in it holds the token."] if parcel.access else []),
        "",
        f"start    {kubectl} {yaml_file.apply(objects)} FILE",
        f"try      {kubectl} port-forward service/{run} {PORT}",
        f"         curl http://127.0.0.1:{PORT}/v1/models/{parcel.settings.name}",
        f"remove   {kubectl} delete {_KINDS} -l {selecting(run)}",
    ]
    return KubectlFile("".join(f"# {line}".rstrip() + "\n" for line in lines), objects)


def inference_service(order: ServeOrder, name: str | None) -> KubectlFile:
    """KServe's object. Raises JobError for a model that KServe cannot find or run."""
    run = serve_model.name_of(order, name)
    parcel = server_packing.pack(order, run)
    made = kserve.inference_service(parcel, server_packing.framework_of(order))
    first = f"# {run} for KServe, by Oarlock {__version__}: its own server answers, not Oarlock's.\n"
    return KubectlFile(first, [made])
