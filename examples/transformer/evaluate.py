"""Score every checkpoint on held-out pairs while training continues.

    oarlock run examples/transformer             starts it as the evaluator, as job.yaml says
    oarlock evaluate RUN                         scores a run's checkpoints once
    python evaluate.py                           scores those of `python train.py`

BLEU and chrF compare a translation with a human one, from 0 to 100; sacrebleu computes them, so they are
comparable with published ones. Untranslated is the score of the Portuguese itself: names and numbers are
the same in both languages. In the run's folder under `eval`, `translations.txt` lists all translations,
and `attention.png` shows what the model looks at when it writes one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import dataset
import model
import pictures
import sacrebleu
import tensorflow as tf
import translator

import oarlock

SHOWN = 3  # translations that are printed


def main() -> None:
    args = arguments()
    data = dataset.read(args.data)
    network = model.build(data, args)
    network.compile(loss=model.Surprise(), weighted_metrics=[model.accuracy()])
    state = oarlock.State(model=network)  # nothing else in a checkpoint is restored
    exported = translator.Translator(network, data.vocabulary_file, args.beams)  # scores what is exported
    held, out = HeldOut(data, args.pairs), oarlock.current().eval
    out.mkdir(parents=True, exist_ok=True)
    print(f"BLEU is {held.signature}", flush=True)
    for step in state.follow():
        began = time.monotonic()
        beam, greedy = (
            in_batches(search, held.sources, args.batch) for search in (exported.serve, exported.greedy)
        )
        found = {"bleu": held.bleu(beam), "bleu_greedy": held.bleu(greedy), "chrf": held.chrf(beam)}
        found.update(bleu_untranslated=held.untranslated, **validated(network, data, args.tokens))
        held.write(out / "translations.txt", beam, greedy)
        draw(out / "attention.png", exported, args.picture or held.typical())
        said = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        print(f"step {step}: {said} of {len(beam):,} pairs in {time.monotonic() - began:.0f} s")
        for source, target, translation in list(zip(held.sources, held.targets, beam))[:SHOWN]:
            print(f"  {source}\n    is        {translation}\n    should be {target}", flush=True)
        state.report(**found)  # last: the run ends with the last score


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Score checkpoints on the pairs that were held out")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--pairs", type=int, default=600, help="held-out pairs to translate")
    parser.add_argument("--batch", type=int, default=100, help="pairs at a time")
    parser.add_argument("--tokens", type=int, default=3072, help="at a time, to validate")
    parser.add_argument("--beams", type=int, default=4, help="as for train.py")
    parser.add_argument("--picture", help="a sentence whose attention is drawn; default: one held out")
    parser.add_argument("--width", type=int, default=128, help="as for train.py")
    parser.add_argument("--depth", type=int, default=2, help="as for train.py")
    parser.add_argument("--heads", type=int, default=8, help="as for train.py")
    parser.add_argument("--dropout", type=float, default=0.1, help="as for train.py")
    return parser.parse_args()


def validated(network: model.Transformer, data: dataset.Dataset, tokens: int) -> dict[str, float]:
    """Loss and accuracy on the validation pairs."""
    numbers = data.numbers("validation")
    buckets = dataset.Buckets(numbers.lengths(), tokens)
    batches = (numbers.batch(*buckets.mine(step, rank=0, world=1)) for step in range(buckets.steps_per_epoch))
    found = network.evaluate(batches, steps=buckets.steps_per_epoch, return_dict=True, verbose=0)
    return {f"validation_{name}": found[name] for name in ("loss", "accuracy")}


class HeldOut:
    """Pairs that training does not see, and how translations of them are scored."""

    def __init__(self, data: dataset.Dataset, count: int) -> None:
        self.sources, self.targets = (texts[:count] for texts in data.texts("test"))
        metric = sacrebleu.BLEU()
        self.untranslated = metric.corpus_score(self.sources, [self.targets]).score
        self.signature = metric.get_signature()  # says how it was computed, for comparison with others

    def bleu(self, translations: Sequence[str]) -> float:
        return sacrebleu.BLEU().corpus_score(translations, [self.targets]).score

    def chrf(self, translations: Sequence[str]) -> float:
        return sacrebleu.CHRF().corpus_score(translations, [self.targets]).score

    def typical(self) -> str:
        """A sentence of medium length."""
        return min(self.sources, key=lambda text: (abs(len(text.split()) - 8), text))

    def write(self, path: Path, *found: Sequence[str]) -> None:
        """All translations side by side, to read. The first line describes BLEU, in sacrebleu's words."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"BLEU {self.signature}\n\n")
            for texts in zip(self.sources, self.targets, *found):
                named = zip(("source", "target", "beam", "greedy"), texts)
                file.write("".join(f"{name + ':':8}{text}\n" for name, text in named) + "\n")


def in_batches(
    translate: Callable[[tf.Tensor], dict[str, tf.Tensor]], texts: Sequence[str], size: int
) -> list[str]:
    """The translations of all texts."""
    parts = (
        translate(tf.constant(texts[at : at + size]))["translation"] for at in range(0, len(texts), size)
    )
    return [translation.decode() for part in parts for translation in part.numpy()]


def draw(path: Path, exported: translator.Translator, text: str) -> None:
    found = exported.attention(tf.constant([text]))
    pictures.write_attention(path, *(found[name].numpy()[0] for name in ("read", "written", "attention")))


if __name__ == "__main__":
    main()
