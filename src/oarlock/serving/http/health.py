"""Whether this replica is alive, whether it is ready, and what all replicas have counted."""

from __future__ import annotations

from oarlock.serving.dialects.exchange import Answer, Call, to_json

_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


async def alive(call: Call) -> Answer:
    """`GET /healthz`: 200 as long as the process answers, even while it loads a model."""
    return to_json({"alive": True})


async def ready(call: Call) -> Answer:
    """`GET /readyz`: 200 once the model is loaded and warm; 503 before that and while the server drains."""
    is_ready = call.models.is_ready
    return to_json({"ready": is_ready}, 200 if is_ready else 503)


async def metrics(call: Call) -> Answer:
    """`GET /metrics`, in Prometheus's format."""
    return Answer(call.models.counters.render().encode(), content_type=_TEXT)
