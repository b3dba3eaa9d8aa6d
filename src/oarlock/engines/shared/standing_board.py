"""A TensorBoard that is deployed on a cluster, as a client describes it. Pure."""

from __future__ import annotations

from typing import NamedTuple

MODULE = "tensorboard.main"
PORT = 6006  # its own default


class StandingBoard(NamedTuple):
    """A TensorBoard behind a Service."""

    name: str  # of the Service
    namespace: str
    host: str | None = None  # the Ingress's
    is_new: bool = False  # it was just created

    @property
    def address(self) -> str:
        """Its URL: outside of the cluster if it has one there."""
        return f"http://{self.host}/" if self.host else f"http://{self.name}.{self.namespace}.svc:{PORT}/"

    @property
    def forward(self) -> str:
        """The command that forwards a port of this machine to it."""
        return f"kubectl -n {self.namespace} port-forward service/{self.name} {PORT}"
