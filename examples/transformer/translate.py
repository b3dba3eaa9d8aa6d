"""Translate a text with an exported model:  python translate.py --model FOLDER "um texto"

FOLDER is the `model` folder of a run; by default, the one that `python train.py` leaves here. Needs only
TensorFlow; with --picture FILE.png also matplotlib, to show what the model looks at.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Translate a text")
    parser.add_argument("text", nargs="?", help="default: every line that comes on stdin")
    parser.add_argument("--model", default="model", help="where the model is: the folder `model` of a run")
    parser.add_argument("--picture", type=Path, help="a PNG file for the attention of the first text")
    args = parser.parse_args()
    folder = newest(args.model)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # takes seconds: a wrong folder is reported first

    model = tf.saved_model.load(str(folder))
    texts = [args.text] if args.text is not None else sys.stdin.read().splitlines()
    if not texts:
        raise SystemExit("There is nothing to translate.")
    found = model.serve(tf.constant(texts))
    for text, translations, scores in zip(texts, found["translations"].numpy(), found["scores"].numpy()):
        print(text)
        for translation, score in zip(translations, scores):
            print(f"  {translation.decode()}  ({score:.2f})")
    if args.picture:
        import pictures

        looks = model.attention(tf.constant(texts[:1]))
        pictures.write_attention(
            args.picture, *(looks[name].numpy()[0] for name in ("read", "written", "attention"))
        )


def newest(folder: str) -> Path:
    versions = [path for path in Path(folder).glob("[0-9]*") if path.name.isdigit()]
    if not versions:
        raise SystemExit(f"There is no model in {folder}. Train one first, or name a run's with --model.")
    return max(versions, key=lambda path: int(path.name))


if __name__ == "__main__":
    main()
