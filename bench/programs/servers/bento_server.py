"""BentoML with adaptive batching, as its documentation has it: bentoml serve bento_server:Digits"""

import bentoml
import numpy as np
from one_model import predict as call


@bentoml.service(traffic={"timeout": 60})
class Digits:
    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=1000, route="/v1/models/digits:predict")
    def predict(self, instances: np.ndarray) -> np.ndarray:
        return np.asarray(call(instances))
