"""Score every checkpoint on held-out pairs while training continues.

    oarlock run examples/issue_summarizer        starts it as the evaluator, as job.yaml says
    oarlock evaluate RUN                         scores a run's checkpoints once
    python evaluate.py                           scores those of `python train.py`

BLEU and ROUGE-L compare the words of a title with those of the human one, from 0 to 100. The baseline
is the first sentence of the body, cut to the length of the longest title: with fewer words it scores less.
`titles.txt`, in the run's folder under `eval`, has all titles to read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import dataset
import export
import model
import scores
import tensorflow as tf
import words

import oarlock


def main() -> None:
    args = arguments()
    data = dataset.read(args.data)
    network = model.build(data, args)
    state = oarlock.State(model=network)  # nothing else in a checkpoint is restored
    exported = export.Titles(network, data, args.beams)  # scores what is exported
    losses = tf.function(lambda bodies, titles: tf.stack(model.losses(network, bodies, titles)))
    held = HeldOut(data, args.pairs)
    for step in state.follow():
        began = time.monotonic()
        total, count = sum(losses(*batch) for batch in data.batches("validation", args.batch)).numpy()
        greedy = in_batches(exported.greedy, held.bodies, args.batch)
        beam = in_batches(exported.beam, held.bodies, args.batch)
        mine, baseline = held.scores(beam), held.scores(held.baseline)
        found = {"bleu": mine["bleu"], "bleu_baseline": baseline["bleu"]}
        found.update(rouge_l=mine["rouge_l"], rouge_l_baseline=baseline["rouge_l"])
        found.update(bleu_greedy=held.bleu(greedy), bleu_unseen=held.bleu(beam, held.unseen))
        found["validation_loss"] = float(total / count)
        held.write(oarlock.current().eval / "titles.txt", greedy, beam)
        said = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        print(f"step {step}: {said} of {len(beam):,} pairs in {time.monotonic() - began:.0f} s", flush=True)
        state.report(**found)  # last: the run ends with the last score


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Score checkpoints on the pairs that were held out")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--pairs", type=int, default=1000, help="held-out pairs to write titles for")
    parser.add_argument("--batch", type=int, default=250, help="pairs at a time")
    parser.add_argument("--beams", type=int, default=4, help="as for train.py")
    parser.add_argument("--width", type=int, default=128, help="as for train.py")
    parser.add_argument("--depth", type=int, default=2, help="as for train.py")
    return parser.parse_args()


class HeldOut:
    """Pairs that training does not see, and what their titles are compared with."""

    def __init__(self, data: dataset.Dataset, count: int) -> None:
        self.bodies, self.titles = (texts[:count] for texts in data.texts("test"))
        self.references = split(self.titles)
        sentences = split(scores.first_sentence(body) for body in self.bodies)
        self.baseline = [b" ".join(sentence[: data.title]).decode() for sentence in sentences]
        # Some titles belong to several bodies: these are the ones that training has never seen.
        seen = {title.lower() for title in data.texts("train")[1]}
        self.unseen = [place for place, title in enumerate(self.titles) if title.lower() not in seen]

    def scores(self, written: Sequence[str]) -> dict[str, float]:
        return {"bleu": self.bleu(written), "rouge_l": scores.rouge_l(split(written), self.references)}

    def bleu(self, written: Sequence[str], places: Sequence[int] | None = None) -> float:
        found = split(written)
        places = range(len(found)) if places is None else places
        return scores.bleu([found[place] for place in places], [self.references[place] for place in places])

    def write(self, path: Path, greedy: Sequence[str], beam: Sequence[str]) -> None:
        """All titles side by side, to read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            for body, title, *written in zip(self.bodies, self.titles, self.baseline, greedy, beam):
                named = zip(("title", "baseline", "greedy", "beam"), (title, *written))
                file.write(
                    "".join(f"{name + ':':10}{text}\n" for name, text in [("body", body[:300]), *named])
                )
                file.write("\n")


def split(texts: Iterable[str]) -> list[list[bytes]]:
    return words.split(tf.constant(list(texts))).to_list()


def in_batches(
    write: Callable[[tf.Tensor], dict[str, tf.Tensor]], bodies: Sequence[str], size: int
) -> list[str]:
    """The titles that `write` returns for all bodies."""
    parts = (write(tf.constant(bodies[at : at + size]))["title"] for at in range(0, len(bodies), size))
    return [title.decode() for part in parts for title in part.numpy()]


if __name__ == "__main__":
    main()
