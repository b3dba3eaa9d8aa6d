"""A GPT of examples/gpt_torch with random weights: `make FOLDER SIZES` exports it, `write FOLDER` is a peer.

The peer loads the same version and writes texts one after the other, each with keys and values kept, and with
the server's own draw: all that it lacks is company. For each line `TEXTS TOKENS` on stdin it prints seconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt_torch"


def make(folder: str, layers: str, width: str, heads: str, context: str) -> None:
    sys.path.insert(0, str(EXAMPLE))
    import torch
    from model import GPT, Config, exported

    import oarlock

    torch.manual_seed(0)
    model = GPT(Config(int(layers), int(width), int(heads), int(context)))
    print(sum(weight.numel() for weight in model.parameters()))
    os.environ["MODEL_DIR"] = folder
    with tempfile.TemporaryDirectory() as scratch:
        weights = Path(scratch) / "model.pt"
        torch.save(exported(model), weights)
        oarlock.export(EXAMPLE / "predict.py", kind="completion", files=[EXAMPLE / "model.py", weights])


def write(folder: str) -> None:
    import numpy as np

    from oarlock.models import predict_file
    from oarlock.serving.generation.sampling import Sampling, draw

    version = Path(folder) / "1"
    model = predict_file.load(version / "predict.py", version)
    print("READY", flush=True)
    for line in sys.stdin:
        texts, tokens = map(int, line.split())
        began = time.perf_counter()
        for text in range(texts):
            chance = np.random.default_rng(text).random
            sampling = Sampling()
            scores = model.start(0, model.encode("The "))[None]
            window = len(model.encode("The "))
            written = []
            while True:
                written += draw(scores, [sampling], [chance()])
                if len(written) == tokens:
                    break
                if window == model.context:
                    window = model.context // 2
                    scores = model.start(0, written[-window:])[None]
                else:
                    scores = model.step([0], [window], written[-1:])
                    window += 1
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    {"make": make, "write": write}[sys.argv[1]](*sys.argv[2:])
