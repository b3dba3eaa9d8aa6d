"""The one kind of error that the API server, or its silence, becomes. Pure."""

from __future__ import annotations

from oarlock.errors import OarlockError


class ApiError(OarlockError):
    """The server's answer is no, or there is none. `status` is HTTP's, 0 where nobody answered."""

    def __init__(self, status: int, reason: str, message: str, doing: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason  # as Kubernetes names it: Forbidden, NotFound, ...
        self.message = message
        self.doing = doing  # "create jobs.batch"

    @property
    def is_transient(self) -> bool:
        """Worth trying again: nobody answers, or a server that is only coming up."""
        return self.status in (0, 429) or self.status >= 500
