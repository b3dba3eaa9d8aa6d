"""A served model as KServe's InferenceService, for clusters that have KServe. Pure."""

from __future__ import annotations

from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.deployments.server_parcel import ServerParcel
from oarlock.engines.kubernetes.manifests import pod_template
from oarlock.errors import JobError

# KServe's own runtimes that take a folder of versions as it stands, by the framework that wrote it.
_FORMATS = {"tensorflow": "tensorflow", "onnx": "onnx"}


def inference_service(parcel: ServerParcel, framework: str) -> Object:
    """Return the InferenceService. Raises JobError for a model that KServe cannot find or run."""
    if framework not in _FORMATS:
        raise JobError(
            "KServe serves a SavedModel or ONNX as Oarlock exports them, and this is "
            f"{framework if framework != 'none' else 'neither'}: `oarlock render --as deployment` serves any"
        )
    settings = parcel.job.kubernetes
    predictor: Object = {
        "minReplicas": parcel.replicas.min,
        "maxReplicas": parcel.replicas.max,
        "model": {
            "modelFormat": {"name": _FORMATS[framework]},
            "storageUri": storage_uri(parcel),
            "resources": pod_template.resources(parcel.job, parcel.part, "none"),
        },
    }
    optional = {
        "serviceAccountName": settings.service_account,
        "nodeSelector": {**settings.node_selector, **parcel.part.node_selector},
        "tolerations": [dict(one) for one in (*settings.tolerations, *parcel.part.tolerations)],
    }
    metadata: Object = {"name": parcel.run, "labels": dict(settings.labels)}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"predictor": {**predictor, **{key: value for key, value in optional.items() if value}}},
    }


def storage_uri(parcel: ServerParcel) -> str:
    """Return where KServe finds the model: the bucket, or the claim and the folder on it."""
    source = parcel.settings.source
    if parcel.settings.is_in_bucket:
        return source
    volumes = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in parcel.claims.volumes}
    # The innermost mount has the folder.
    for mount in sorted(parcel.claims.mounts, key=lambda one: -len(one["mountPath"])):
        top = mount["mountPath"].rstrip("/") + "/"
        if source.startswith(top):
            return f"pvc://{volumes[mount['name']]}/{source[len(top) :]}"
    raise JobError(
        "KServe reads a model from a claim or a bucket, and this one is on this machine: name a run on the "
        "cluster, or s3://..."
    )
