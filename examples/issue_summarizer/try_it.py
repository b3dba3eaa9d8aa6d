"""Write a title for a text with an exported model:  python try_it.py --model FOLDER "body of the issue"

FOLDER is the `model` folder of a run; by default, the one that `python train.py` leaves here. Needs
only TensorFlow.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a title for a text")
    parser.add_argument("body", nargs="?", help="the text; default: what comes on stdin")
    parser.add_argument("--model", default="model", help="where the model is: the folder `model` of a run")
    args = parser.parse_args()
    folder = newest(args.model)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # takes seconds: a wrong folder is reported first

    model = tf.saved_model.load(str(folder))
    body = tf.constant([args.body if args.body is not None else sys.stdin.read()])
    beam, nearest = model.signatures["beam"](body), model.signatures["nearest"](body)
    print("greedy:", *texts(model.signatures["greedy"](body)["title"]))
    for score, title in zip(beam["scores"].numpy()[0], texts(beam["titles"][0])):
        print(f"beam:   {title}  ({score:.2f})")
    for similarity, title in zip(nearest["similarity"].numpy()[0], texts(nearest["titles"][0])):
        print(f"near:   {title}  ({similarity:.2f})")


def newest(folder: str) -> Path:
    versions = [path for path in Path(folder).glob("[0-9]*") if path.name.isdigit()]
    if not versions:
        raise SystemExit(f"There is no model in {folder}. Train one first, or name a run's with --model.")
    return max(versions, key=lambda path: int(path.name))


def texts(tensor: Any) -> list[str]:
    return [text.decode() for text in tensor.numpy()]


if __name__ == "__main__":
    main()
