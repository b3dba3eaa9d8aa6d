"""Which handler answers which address: one table, built once for the model's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from oarlock.serving.dialects import (
    open_inference,
    open_inference_models,
    openai,
    tensorflow_models,
    tensorflow_predict,
)
from oarlock.serving.dialects.checked_inputs import shortened
from oarlock.serving.dialects.exchange import Dialect, Handler, Refused
from oarlock.serving.http import health, openapi, page_routes

TENSORFLOW = Dialect("tensorflow")
OPEN_INFERENCE = Dialect("open_inference")
SERVER = Dialect("server")  # not part of a dialect: health, metrics, the page

_VERSION = re.compile(r"/versions/([^/:]*)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_MODEL = re.compile(r"/(v[12])/models/([^/:]+)")


@dataclass(frozen=True)
class Route:
    """The handlers of an address, by method."""

    handlers: Mapping[str, Handler]
    dialect: Dialect
    is_open: bool = False  # needs no token


Table = Mapping[str, Route]


def table(name: str) -> dict[str, Route]:
    """Return all addresses of a model, without versions: see `find`."""
    return {
        **{f"/v1/models/{name}{rest}": route for rest, route in _TENSORFLOW.items()},
        **{f"/v2/models/{name}{rest}": route for rest, route in _OPEN_INFERENCE.items()},
        **_SERVER,
        **{
            path: Route({"GET": handler}, SERVER, is_open=True)
            for path, handler in page_routes.handlers().items()
        },
    }


def find(routes: Table, path: str, name: str) -> tuple[Route, int | None]:
    """Return the route and the version in the path. Raises Refused with 404."""
    route = routes.get(path)
    if route is not None:
        return route, None
    version = _VERSION.search(path)
    if version is not None:
        route = routes.get(path[: version.start()] + path[version.end() :])
        if route is not None and route.dialect in (TENSORFLOW, OPEN_INFERENCE):
            if not _NUMBER.fullmatch(version[1]):
                raise Refused(404, f"{shortened(version[1])} is not a version; versions are numbers")
            return route, int(version[1])
    raise _unknown(path, name)


def dialect_of(path: str) -> Dialect:
    """The dialect for errors at an unknown address."""
    if path.startswith("/v2"):
        return OPEN_INFERENCE
    if path.startswith("/v1/completions"):
        return openai.OPENAI
    return TENSORFLOW if path.startswith("/v1/models") else SERVER


def _unknown(path: str, name: str) -> Refused:
    model = _MODEL.match(path)
    if model is not None and model[2] != name:
        return Refused(404, f"there is no model {shortened(model[2])} here; this server has {name!r}")
    return Refused(404, f"there is nothing at {shortened(path)}; /openapi.json lists what there is")


_TENSORFLOW = {
    "": Route({"GET": tensorflow_models.status}, TENSORFLOW),
    "/metadata": Route({"GET": tensorflow_models.metadata}, TENSORFLOW),
    ":predict": Route({"POST": tensorflow_predict.predict}, TENSORFLOW),
    ":classify": Route({"POST": tensorflow_predict.classify}, TENSORFLOW),
    ":regress": Route({"POST": tensorflow_predict.regress}, TENSORFLOW),
}
_OPEN_INFERENCE = {
    "": Route({"GET": open_inference_models.model}, OPEN_INFERENCE),
    "/ready": Route({"GET": open_inference_models.model_ready}, OPEN_INFERENCE, is_open=True),
    "/infer": Route({"POST": open_inference.infer}, OPEN_INFERENCE),
}
_SERVER = {
    "/v1/models": Route({"GET": tensorflow_models.listed}, TENSORFLOW),
    "/v1/completions": Route({"POST": openai.completions}, openai.OPENAI),
    "/v2": Route({"GET": open_inference_models.server}, OPEN_INFERENCE),
    "/v2/health/live": Route({"GET": open_inference_models.live}, OPEN_INFERENCE, is_open=True),
    "/v2/health/ready": Route({"GET": open_inference_models.ready}, OPEN_INFERENCE, is_open=True),
    "/v2/models": Route({"GET": open_inference_models.listed}, OPEN_INFERENCE),
    "/v2/repository/index": Route({"POST": open_inference_models.index}, OPEN_INFERENCE),
    "/healthz": Route({"GET": health.alive}, SERVER, is_open=True),
    "/readyz": Route({"GET": health.ready}, SERVER, is_open=True),
    "/metrics": Route({"GET": health.metrics}, SERVER),
    "/openapi.json": Route({"GET": openapi.description}, SERVER),
}
