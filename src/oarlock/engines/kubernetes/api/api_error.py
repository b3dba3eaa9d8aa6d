"""The error for a request that the API server refuses or does not answer. Pure."""

from __future__ import annotations

from oarlock.errors import OarlockError


class ApiError(OarlockError):
    """The API server refused a request, or did not answer. `status` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, reason: str, message: str, doing: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason  # as Kubernetes names it: Forbidden, NotFound, ...
        self.message = message
        self.doing = doing  # "create jobs.batch"

    @property
    def is_transient(self) -> bool:
        """Whether to try again: there was no answer, or the server is starting or overloaded."""
        return self.status in (0, 429) or self.status >= 500
