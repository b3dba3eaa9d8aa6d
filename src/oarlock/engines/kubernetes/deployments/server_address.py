"""Where a served model is reached: inside the cluster, from this machine, and from outside."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.deployments import rollout, server_record
from oarlock.engines.kubernetes.deployments.server_parcel import PORT, access_path
from oarlock.engines.kubernetes.follow import pod_status
from oarlock.records.run_folder import RunFolder
from oarlock.serving.fleet import announcement
from oarlock.serving.fleet.announcement import Announcement
from oarlock.serving.settings import Settings
from oarlock.system.pods.places import WORK

# The server writes it beside its settings, once it answers.
_READ = f"print(open('{WORK}/settings.ready').read())"
_HERE = "127.0.0.1"


def of(api: Api, deployment: Object) -> Announcement | None:
    """Return what a ready pod says about itself, with the addresses from outside; None if no pod is ready."""
    who = server_record.identity_of(deployment)
    ready = [pod for pod in api.all("Pod", who.members) if pod_status.is_well(pod)]
    if not ready:
        return None
    announced = _announced(api, ready[-1]["metadata"]["name"])
    if announced is None:
        return None
    scheme = announced.url.partition("://")[0]
    context = f" --context {shlex.quote(api.context)}" if api.context else ""
    return replace(
        announced,
        url=f"{scheme}://{who.name}.{api.namespace}.svc:{PORT}",
        curl=_from_here(announced.curl),
        forward=f"kubectl{context} -n {api.namespace} port-forward service/{who.name} {PORT}",
        outside=_outside(api, who.selector),
    )


def note(api: Api, run: RunFolder, deployment: Object) -> Announcement | None:
    """Return what a server says about itself, and keep it in the record."""
    announced = of(api, deployment)
    if announced is not None:
        announced = replace(announced, curl=with_files(announced.curl, run.serving_file.read_text()))
        announcement.write(announcement.path_for(run.serving_file), announced)
    return announced


def _announced(api: Api, pod: str) -> Announcement | None:
    try:
        code, said, _ = pod_exec.run(api, pod, ["python3", "-I", "-S", "-c", _READ])
        return announcement.parse(said) if code == 0 else None
    except (ApiError, ValueError):
        return None  # this user may not, or the pod has just ended


def _from_here(curl: str) -> str:
    """The pod's own command, through the forwarded port."""
    return re.sub(r"(https?://)[^/\s]+", rf"\g<1>{_HERE}:{PORT}", curl, count=1)


def with_files(curl: str, settings: str) -> str:
    """The command with the files of the machine that serves, as the record's settings name them."""
    try:
        known = Settings.from_json(settings)
    except ValueError:
        return curl
    for name, path in (("token", known.token_file), ("tls.crt", known.tls_cert)):
        curl = curl.replace(access_path(name), path or access_path(name))
    return curl


def _outside(api: Api, labels: str) -> str:
    for one in rollout.listed(api, "Ingress", labels):
        scheme = "https" if one["spec"].get("tls") else "http"
        for rule in one["spec"].get("rules") or []:
            if rule.get("host"):
                return f"{scheme}://{rule['host']}"
    for one in rollout.listed(api, "HTTPRoute", labels):
        for host in one["spec"].get("hostnames") or []:
            return f"http://{host}"
    return ""
