"""What serving a job's model would create, once the job is trained."""

from __future__ import annotations

from typing import Any

from oarlock.engines.kubernetes.deployments import serve_model, server_objects
from oarlock.engines.kubernetes.deployments.server_parcel import PORT, Reach, ServerParcel
from oarlock.engines.kubernetes.manifests import default_images, objects
from oarlock.engines.kubernetes.plan import quota_use
from oarlock.job.model import Job
from oarlock.serving.settings import Settings

_GPU = "requests.nvidia.com/gpu"


def describe(job: Job, framework: str) -> dict[str, Any] | None:
    """The objects and the needs of each pod; None for a job without the section `serve`."""
    part = job.serve
    if part is None:
        return None
    name = serve_model.usual_name(job)
    parcel = ServerParcel(
        run=name,
        job=job,
        settings=Settings(name=job.name, source="", port=PORT),
        image=default_images.choose(job, part.role, framework).name,
        archive=b"",
        part=part.role,
        reach=Reach(part.ingress or "", part.gateway or ""),
    )
    usage = quota_use.of_pod(server_objects.deployment(parcel, None)["spec"]["template"])
    made = [one for one in server_objects.standalone(parcel) if one["kind"] != "ConfigMap"]
    return {
        "objects": [f"ConfigMap/{name}-code-*", *objects.names(made)],  # named after what they hold
        "pods": str(part.replicas),
        "cpu": float(usage.get("requests.cpu", 0)),
        "memory": int(usage.get("requests.memory", 0)),
        "gpu": int(usage.get(_GPU, 0)),
        "image": parcel.image,
        "when": None if part.condition is None else str(part.condition),
    }
