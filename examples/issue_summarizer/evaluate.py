"""Score every checkpoint while the training continues, on pairs that were held out.

    oarlock run examples/issue_summarizer        starts it as the evaluator, as job.yaml says
    oarlock evaluate RUN                         scores a run's checkpoints once
    python evaluate.py                           scores those of `python train.py`

BLEU and ROUGE-L compare the words of a title with those of the one that a person wrote, from 0 to 100. The
baseline is the first sentence of the body, cut to the length of an average title.
"""

import argparse
import time

import dataset
import export
import model
import scores
import tensorflow as tf
import words

import oarlock

SHOWN = 5  # titles to print


def main():
    args = arguments()
    data = dataset.read(args.data)
    network = model.build(data, args)
    state = oarlock.State(model=network)  # nothing else of a checkpoint is restored
    exported = export.Titles(network, data, args.beams)  # what is scored is what is exported
    losses = tf.function(lambda bodies, titles: tf.stack(model.losses(network, bodies, titles)))
    bodies, titles = (texts[: args.pairs] for texts in data.texts("test"))
    references = split(titles)
    baseline = [found[: average(references)] for found in split(map(scores.first_sentence, bodies))]
    found = {"baseline_bleu": scores.bleu(baseline, references)}
    found["baseline_rouge_l"] = scores.rouge_l(baseline, references)
    for step in state.follow():
        began = time.monotonic()
        total, count = sum(losses(*batch) for batch in data.batches("validation", args.batch)).numpy()
        found["validation_loss"] = float(total / count)
        for name, write in (("greedy_", exported.greedy), ("", exported.beam)):
            written = in_batches(write, bodies, args.batch)
            found[f"{name}bleu"] = scores.bleu(split(written), references)
            found[f"{name}rouge_l"] = scores.rouge_l(split(written), references)
        state.report(**found)
        show(step, written, titles, found, time.monotonic() - began)


def arguments():
    parser = argparse.ArgumentParser(description="Score checkpoints on the pairs that were held out")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--pairs", type=int, default=1000, help="held-out pairs to write titles for")
    parser.add_argument("--batch", type=int, default=250, help="pairs at a time")
    parser.add_argument("--beams", type=int, default=4, help="as for train.py")
    parser.add_argument("--width", type=int, default=128, help="as for train.py")
    parser.add_argument("--depth", type=int, default=2, help="as for train.py")
    return parser.parse_args()


def split(texts):
    return words.split(tf.constant(list(texts))).to_list()


def average(references):
    return round(sum(map(len, references)) / len(references))


def in_batches(write, bodies, size):
    """The titles that `write` gives for all bodies."""
    parts = (write(tf.constant(bodies[at : at + size]))["title"] for at in range(0, len(bodies), size))
    return [title.decode() for part in parts for title in part.numpy()]


def show(step, written, titles, found, seconds):
    for title, wanted in list(zip(written, titles))[:SHOWN]:
        print(f"  wrote: {title}\n  asked: {wanted}")
    said = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    print(f"step {step}: {said} of {len(titles):,} pairs in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
