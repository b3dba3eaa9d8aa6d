"""Everything that is sent to serve a model, before it becomes objects. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from oarlock.engines.kubernetes.api.names import JOB, ROLE, SERVER, Identity, Object
from oarlock.engines.kubernetes.manifests.payload import PART
from oarlock.job.model import Job, Role
from oarlock.quantities import Replicas
from oarlock.serving.settings import Settings
from oarlock.system.pods import places

PORT = 8000
MODEL_PARTS = "model.tar.gz"


@dataclass(frozen=True)
class Claims:
    """The claims of a training run, as a serving pod mounts them: for reading."""

    volumes: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()
    of: Identity | None = None  # the run: its leader may have them on one node only
    is_shared: bool = True  # several nodes may mount all of them


@dataclass(frozen=True)
class Reach:
    """How clients outside of its namespace reach the server."""

    host: str = ""  # of an Ingress, or of a route
    gateway: str = ""  # the Gateway, as NAME or NAMESPACE/NAME: then it is a route, not an Ingress
    tls_secret: str = ""  # the Secret of the Ingress's certificate

    @property
    def is_open(self) -> bool:
        """Whether pods of other namespaces bring requests."""
        return bool(self.host or self.gateway)


@dataclass(frozen=True)
class ServerParcel:
    """A served model, packed: what its objects are made of."""

    run: str  # the name of the record and of the objects
    job: Job  # whose `kubernetes` section the pods follow
    settings: Settings  # as the pod reads them: paths are the pod's
    image: str
    archive: bytes  # server.zip
    part: Role  # how many pods, and what each needs; min..max: an autoscaler decides
    pip: tuple[str, ...] = ()  # packages of the user's, always installed
    needed: Mapping[str, str] = field(default_factory=dict)  # package: module; installed where it is missing
    env: Mapping[str, str] = field(default_factory=dict)
    model: bytes = b""  # a .tar.gz that is handed over
    files: Mapping[str, str] = field(default_factory=dict)  # texts beside it: a predict.py
    access: Mapping[str, bytes] = field(default_factory=dict)  # files of the Secret: token, certificate, key
    claims: Claims = field(default_factory=Claims)
    reach: Reach = field(default_factory=Reach)
    written: str = ""  # the job, as YAML: for other clients
    piece: int = PART
    id: str = ""
    owner: str = ""
    revision: int = 1

    @property
    def identity(self) -> Identity:
        """The name and id by which the cluster finds the objects."""
        return Identity(self.run, self.id)

    @property
    def replicas(self) -> Replicas:
        """How many pods."""
        return self.part.replicas

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every object: the user's, which cannot replace those that identify it."""
        return {**self.job.kubernetes.labels, **self.identity.labels, JOB: self.job.name}

    @property
    def selector(self) -> dict[str, str]:
        """The labels that only its pods have."""
        return {**self.identity.labels, ROLE: SERVER}

    @property
    def pod_file(self) -> str:
        """What the pod does before it serves, as JSON."""
        asked = {"pip": [*self.needed, *self.pip], "modules": dict(self.needed), "env": dict(self.env)}
        return json.dumps(asked, sort_keys=True)

    @property
    def texts(self) -> dict[str, str]:
        """The files of the first ConfigMap, besides the server itself."""
        own = {"settings.json": self.settings.to_json(), "pod.json": self.pod_file, "job.yaml": self.written}
        return {**self.files, **own}

    @property
    def digest(self) -> str:
        """Tells the content of one `serve` from that of another: pods of both run during an update."""
        texts = [f"{name}\n{text}".encode() for name, text in sorted(self.texts.items())]
        known = [hashlib.sha256(one).digest() for one in (self.archive, self.model, *texts)]
        return hashlib.sha256(b"".join(known)).hexdigest()[:10]

    @property
    def code(self) -> dict[str, bytes]:
        """The parts of the model's archive, by ConfigMap; the first also has the server and its settings."""
        head = len(self.archive) + sum(len(one.encode()) for one in self.texts.values())
        cuts = [0, *range(max(0, self.piece - head), len(self.model), self.piece)]
        ends = [*cuts[1:], len(self.model)]
        return {
            f"{self.run}-code-{self.digest}-{number}": self.model[start:end]
            for number, (start, end) in enumerate(zip(cuts, ends, strict=True))
        }

    @property
    def access_name(self) -> str:
        """The name of the Secret. The API server shows no hash of it to those who may not read it."""
        return f"{self.run}-access-{self.revision}"

    @property
    def grace(self) -> int:
        """Seconds for requests in flight when the server stops."""
        return int(self.settings.grace)


def access_path(name: str) -> str:
    """Where the pod finds a file of the Secret."""
    return f"{places.SECRET}/{name}"


def text(data: bytes) -> str:
    """Bytes as an object holds them."""
    return base64.b64encode(data).decode()
