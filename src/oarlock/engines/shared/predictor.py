"""A model that an engine has loaded for one client alone: `oarlock predict`."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

_MOMENT = 10.0  # seconds for a server to say whether it is ready


@dataclass(frozen=True)
class Predictor:
    """A process or a pod that answers requests. It may be lost and replaced: the address stays."""

    url: str  # on this machine
    is_ready: Callable[[], bool]  # whether it answers now; raises OarlockError if it never will


def answers(url: str) -> bool:
    """Whether a model server has loaded its model and answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/readyz", timeout=_MOMENT) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False
