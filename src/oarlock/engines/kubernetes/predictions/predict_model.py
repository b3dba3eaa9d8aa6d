"""`oarlock predict --on kubernetes`: pods that load a model for one client, behind ports of its machine.

The examples go through the API server and the answers come back the same way: neither needs a claim or a
bucket, and their size does not matter. Pods keep nothing. A lost pod is replaced, and the client repeats the
requests that it has not answered.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from oarlock.engines.kubernetes.api import port_forward
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.claims import claim_pod, claim_session
from oarlock.engines.kubernetes.deployments import serve_model, server_objects, server_packing
from oarlock.engines.kubernetes.deployments.server_parcel import PORT
from oarlock.engines.kubernetes.lifecycle.connect import explained
from oarlock.engines.kubernetes.predictions import prediction_job
from oarlock.engines.kubernetes.predictions.prediction_pods import PredictionPods
from oarlock.engines.shared import tensorboard_process
from oarlock.engines.shared.predictor import Predictor
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.job.model import slug

_LONGEST = 40 - len("-predict-abcd")


@contextmanager
def predictors(order: ServeOrder, workers: int, notify: Callable[[str], None]) -> Iterator[list[Predictor]]:
    """Have pods load the model inside a `with` block; they are always removed."""
    with explained():
        api = serve_model.cluster_of(order)
        short = slug(order.job.name)[:_LONGEST].strip("-")
        name = claim_pod.new_name(short, prediction_job.PURPOSE)
        packed = server_packing.pack(order, name, id=secrets.token_hex(8), owner=api.user)
        parcel = prediction_job.own(packed)
        serve_model.check_claims(api, parcel)
        job = prediction_job.job(parcel, workers)
        needs = server_objects.config_maps(parcel)
        with claim_session.leased(api, job, prediction_job.pod(parcel), needs) as made:
            notify(
                f"{workers} {'pod' if workers == 1 else 'pods'} of {name} in {api.namespace} load the model"
            )
            pods = PredictionPods(api, parcel.identity, made, notify)
            try:
                with _forwarded(api, pods, workers) as urls:
                    yield [Predictor(url, partial(pods.is_ready, at, url)) for at, url in enumerate(urls)]
            finally:
                pods.end()


@contextmanager
def _forwarded(api: Api, pods: PredictionPods, workers: int) -> Iterator[Sequence[str]]:
    """A port of this machine for each index, whatever pod has the index."""
    with ExitStack() as stack:
        urls = []
        for index in range(workers):
            here = tensorboard_process.listener(0)
            urls.append(f"http://127.0.0.1:{here.getsockname()[1]}")
            stack.enter_context(port_forward.forwarded(api, partial(pods.name_of, index), PORT, here))
        yield urls
