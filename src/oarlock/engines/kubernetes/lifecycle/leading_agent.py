"""Send a request to a run's leading agent, through exec in its pod."""

from __future__ import annotations

import json
from typing import Any

from oarlock.agent.net.control import UnreachableError
from oarlock.agent.protocol.pod_paths import AGENT
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Identity, Object

_ASK = f"import sys; sys.path.append('{AGENT}'); from oarlock.agent.pod.ask import main; main()"


def pods(api: Api, run: Identity) -> list[Object]:
    """The running pods in which the leading agent may be, with one that is being replaced or stopped."""
    found = api.all("Pod", run.leading)
    return [pod for pod in found if pod["status"].get("phase") == "Running"]


def ask(api: Api, pod: Object, question: dict[str, Any]) -> dict[str, Any]:
    """The leading agent's answer. Raises UnreachableError if it does not answer, and ApiError."""
    from oarlock.engines.kubernetes.api import pod_exec  # whose websocket takes longer to import than to use

    try:
        words = ["python3", "-I", "-c", _ASK, json.dumps(question)]
        code, said, complaint = pod_exec.run(api, pod["metadata"]["name"], words)
    except ApiError as error:
        if error.is_transient:
            raise UnreachableError(str(error)) from None  # its pod may be ending
        raise
    if code:
        raise UnreachableError(complaint.decode(errors="replace").strip().rpartition("\n")[2])
    answer: dict[str, Any] = json.loads(said)
    if answer.get("unreachable"):
        raise UnreachableError(answer["why"])
    return answer


def kill_tasks(api: Api, run: Identity) -> None:
    """Have the leading agent kill all tasks of a run whose pods are being deleted.

    A kubelet keeps the grace period that it began with, whatever a later deletion says (kubernetes#83916),
    and the deletion by a Job has the full one.
    """
    try:
        for pod in pods(api, run):
            ask(api, pod, {"ask": "leave"})
    except (UnreachableError, ApiError):
        pass  # it has ended, or never ran: tasks do not outlive it for long
