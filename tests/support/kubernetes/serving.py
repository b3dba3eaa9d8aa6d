"""A small model to serve on the cluster, and requests to it: through a forwarded port, and from a pod."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oarlock.engines.kubernetes.api import pod_exec, port_forward
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Object, selecting
from oarlock.engines.kubernetes.deployments.server_parcel import PORT
from oarlock.engines.kubernetes.follow import pod_status
from oarlock.engines.shared import tensorboard_process
from tests.support.ports import free_ports
from tests.support.waiting import eventually

MANIFEST = {
    "version": 1,
    "format": "python",
    "entry": "model.py",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 2]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [None]}],
}
MODEL = """
class Model:
    def predict(self, inputs):
        return {"y": FACTOR * inputs["x"].sum(axis=1)}

def load(folder):
    return Model()
"""
SMALL_SERVER = ("--set", "serve.cpu=0.05", "--set", "serve.memory=300Mi")
IMAGE = ("--set", "serve.image=python:3.11-slim")
# Threads that ask the server without a pause until a file tells them to end: every other one on a connection
# that it keeps, the others each time on a new one.
CLIENT = """
import http.client, json, os, socket, sys, threading
name, threads = sys.argv[1], int(sys.argv[2])
host, counts, lock = socket.gethostbyname(name), {}, threading.Lock()
def note(key):
    with lock:
        counts[key] = counts.get(key, 0) + 1
        if counts[key] == 1:
            print("seen", key, flush=True)
def ask(keeps):
    line = http.client.HTTPConnection(host, 8000, timeout=120)
    while not os.path.exists("/tmp/enough"):
        try:
            line.request("POST", "/v1/models/adder:predict", '{"inputs": {"x": [[1, 2]]}}')
            answer = line.getresponse()
            said = answer.read().decode()
            note(said if answer.status == 200 else f"{answer.status} {said}")
        except Exception as problem:
            note(f"{type(problem).__name__}: {problem}")
            line.close()
        if not keeps:
            line.close()
asking = [threading.Thread(target=ask, args=[number % 2 == 0]) for number in range(threads)]
for one in asking:
    one.start()
for one in asking:
    one.join()
print("counts", json.dumps(counts), flush=True)
"""


def write_model(folder: Path, factor: int, number: int = 1) -> Path:
    """A model that answers `factor` times the sum of each row."""
    version = folder / str(number)
    version.mkdir(parents=True)
    (version / "oarlock.json").write_text(json.dumps(MANIFEST))
    (version / "model.py").write_text(MODEL.replace("FACTOR", str(factor)))
    return folder


def pods_of(api: Api, name: str) -> list[Object]:
    """The pods that serve and are not about to go."""
    found = api.all("Pod", selecting(name))
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def answering(api: Api, name: str) -> list[Object]:
    """Those of them that answer."""
    return [pod for pod in pods_of(api, name) if pod_status.is_well(pod)]


@contextmanager
def port_of(api: Api, pod: Object) -> Iterator[int]:
    """A port of this machine that leads to a pod's server."""
    with (
        tensorboard_process.listener(free_ports(1)[0]) as here,
        port_forward.forwarded(api, pod["metadata"]["name"], PORT, here),
    ):
        yield here.getsockname()[1]


def ask(port: int, x: list[float]) -> float:
    """The answer for one row."""
    body = json.dumps({"inputs": {"x": [x]}}).encode()
    url = f"http://127.0.0.1:{port}/v1/models/adder:predict"
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
        outputs: list[float] = json.load(answer)["outputs"]
    return outputs[0]


@contextmanager
def asked(api: Api, name: str, threads: int = 2) -> Iterator[Asked]:
    """A pod in the same namespace asks the server all the time."""
    asking = Asked(api, f"{name}-client")
    api.create(client_pod(asking.pod, name, threads))
    try:
        asking.until_seen("outputs")
        yield asking
    finally:
        api.delete("Pod", asking.pod, grace=0)


class Asked:
    """What a pod of clients has got so far."""

    def __init__(self, api: Api, pod: str) -> None:
        self.api, self.pod = api, pod

    @property
    def said(self) -> str:
        """Each kind of answer, and failure, once."""
        if self.api.get("Pod", self.pod)["status"].get("phase") == "Pending":
            return ""
        return b"\n".join(self.api.log(self.pod, 10)).decode()

    def until_seen(self, answer: str) -> None:
        eventually(lambda: answer in self.said, f"{answer!r} among the answers", 300, evidence=self._last)

    def end(self) -> dict[str, int]:
        """Stop asking. How often it got each kind of answer, and met each failure."""
        pod_exec.run(self.api, self.pod, ["python3", "-c", "open('/tmp/enough', 'w')"])
        eventually(lambda: "counts" in self.said, "what it has counted", 300)
        counts: dict[str, int] = json.loads(self.said.rpartition("counts ")[2])
        return counts

    def _last(self) -> str:
        return self.said[-1000:]


def answer_of(factor: float) -> str:
    """What the clients get from the model with this factor."""
    return json.dumps({"outputs": [3.0 * factor]})


def client_pod(name: str, host: str, threads: int = 1) -> Object:
    """A pod that sends requests to a Service of its namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": "python:3.11-slim",
                    "command": ["python3", "-u", "-c", CLIENT, host, str(threads)],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }
