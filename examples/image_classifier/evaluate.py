"""Score every checkpoint on held-out pictures while training continues.

    oarlock run examples/image_classifier        starts it as the evaluator, as job.yaml says
    oarlock evaluate RUN                         scores a run's checkpoints once
    python evaluate.py                           scores those of `python train.py`

precision@1 is the share of pictures whose likeliest class is right; recall@5 is the share whose right class
is among the five likeliest, which is easier with 10 classes than with 1,000.
"""

from __future__ import annotations

import argparse
import time

import model
import numpy as np
import pictures
import records
import tensorflow as tf

import oarlock

SHOWN = 48  # pictures with their predictions


def main() -> None:
    args = arguments()
    dataset = records.read(args.data)
    # The moving average of the weights is scored and exported; nothing else is restored.
    averaged = model.build(dataset.shape, len(dataset.labels), args.width, args.blocks)
    state = oarlock.State(averaged=averaged)
    predict = tf.function(lambda images: tf.nn.softmax(averaged(images, training=False)))
    out = oarlock.current().eval
    for step in state.follow():
        began, scored = time.monotonic(), Scores()
        for images, labels in dataset.batches("test", args.batch):
            probabilities = predict(images).numpy()
            if scored.count == 0:
                shown = (images.numpy()[:SHOWN], labels.numpy()[:SHOWN], probabilities[:SHOWN])
                out.mkdir(parents=True, exist_ok=True)
                pictures.write_predictions(out / "predictions.png", *shown)
            scored.add(probabilities, labels.numpy())
        rate = scored.count / (time.monotonic() - began)
        found = scored.found()
        state.report(**found)  # the rate is not a score: it differs every time
        said = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        print(f"step {step}: {said} of {scored.count:,} pictures, {rate:,.0f} a second", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Score checkpoints on the pictures that were held out")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--batch", type=int, default=500, help="pictures at a time")
    parser.add_argument("--width", type=int, default=16, help="as for train.py")
    parser.add_argument("--blocks", type=int, default=1, help="as for train.py")
    return parser.parse_args()


class Scores:
    def __init__(self) -> None:
        self.count = self.first = self.among_five = 0

    def add(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :5]
        hits = best == labels[:, None]
        self.count += len(labels)
        self.first += int(hits[:, 0].sum())
        self.among_five += int(hits.any(axis=1).sum())

    def found(self) -> dict[str, float]:
        return {"precision@1": self.first / self.count, "recall@5": self.among_five / self.count}


if __name__ == "__main__":
    main()
