"""A pod of a stranger's, in the same namespace: it calls the coordinator of somebody else's run.

What runs in it is text: the wire's own module and the calls below, so that it needs nothing of ours there.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager

from oarlock.agent.protocol import wire
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Object
from tests.support.kubernetes.driving import unused
from tests.support.waiting import eventually

CALLS = '''
import os, socket

def greeted(connection, unpacker):
    """The coordinator's challenge."""
    for message in heard(connection, unpacker):
        return message["challenge"]

def heard(connection, unpacker):
    """Everything, until the other side closes the connection."""
    while True:
        try:
            data = connection.recv(4096)
        except ConnectionResetError:
            return
        if not data:
            return
        yield from unpacker.feed(data)

def said(make):
    """What the coordinator answers to a greeting until it closes; `make` is given its challenge."""
    with socket.create_connection((os.environ["HOST"], int(os.environ["PORT"])), timeout=30) as connection:
        unpacker = Unpacker()
        connection.sendall(make(greeted(connection, unpacker)))
        answers = []
        try:
            for message in heard(connection, unpacker):
                answers += message
                if "welcome" in message:
                    return "welcome"
        except TimeoutError:
            return "left open"
        return f"closed after {answers}" if answers else "closed"

recorded = []

def proven(token, challenge):
    return sealed(pack(greeting({"client": True}, nonce())), Seal(greeting_key(token, challenge)))

def genuine(challenge):
    recorded.append(proven(os.environ["TOKEN"], challenge))
    return recorded[0]

def agent(challenge):
    hello = {"name": "worker-1", "uid": "stranger", "machine": "stranger", "host": "10.0.0.1"}
    return pack(greeting(hello, nonce())) + bytes(SEAL)

print(json.dumps({
    "garbage": said(lambda challenge: b"GET / HTTP/1.1" + bytes([13, 10, 13, 10])),
    "no object": said(lambda challenge: pack([1, 2])),
    "too long": said(lambda challenge: bytes([0, 16, 0, 0])),
    "wrong token": said(lambda challenge: proven("0" * 64, challenge)),
    "wrong proof": said(agent),
    "genuine": said(genuine),
    "replayed": said(lambda challenge: recorded[0]),
}))
'''


@contextmanager
def visiting(api: Api, script: str, image: str, env: dict[str, str]) -> Iterator[str]:
    """A pod that runs a script, as anybody with the role `edit` may start it; its name."""
    name = f"{unused()}-stranger"
    api.create(_pod(name, script, image, env))
    try:
        yield name
    finally:
        api.delete("Pod", name, grace=0)


def told(api: Api, pod: str, seconds: float = 300) -> str:
    """What it said, once it has ended."""

    def has_ended() -> bool:
        return api.get("Pod", pod)["status"]["phase"] in ("Succeeded", "Failed")

    eventually(has_ended, f"end of {pod}", seconds)
    return "\n".join(line.decode() for line in api.log(pod))


def call_all(api: Api, address: tuple[str, int], token: str, image: str) -> dict[str, str]:
    """How each kind of call was answered, from inside the cluster."""
    env = {"HOST": address[0], "PORT": str(address[1]), "TOKEN": token}
    with visiting(api, inspect.getsource(wire) + CALLS, image, env) as pod:
        said = told(api, pod)
    try:
        found: dict[str, str] = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        raise AssertionError(f"the stranger's pod said: {said}") from None
    return found


def _pod(name: str, script: str, image: str, env: dict[str, str]) -> Object:
    container = {
        "name": "main",
        "image": image,
        "command": ["python3", "-c", script],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": security,
            "containers": [container],
        },
    }
