"""From a source to its translation: the likeliest piece each time (greedy), or the best of several candidates
(beam). Keys and values of what is already written are kept, so each piece costs one position, not all.
"""

from __future__ import annotations

import pieces
import tensorflow as tf
from model import Memory, Past, Transformer

NEVER = -1e9
LENGTH = 0.6  # a translation's score is divided by its length to this power: otherwise the shortest would win
UNFIT = (pieces.PAD, pieces.START, pieces.UNKNOWN)


def greedy(model: Transformer, sources: tf.Tensor) -> tf.Tensor:
    """The numbers of a translation for each source, shape (sources, longest)."""
    rows, memory = tf.shape(sources)[0], model.memory(sources)
    written, past = tf.zeros((rows, model.longest), tf.int32), model.no_past(rows)
    chosen, ended = tf.fill((rows,), pieces.START), tf.zeros((rows,), tf.bool)
    for place in tf.range(model.longest):
        likely, past = next_piece(model, chosen, place, past, memory)
        chosen = tf.where(ended, pieces.PAD, tf.argmax(likely, axis=-1, output_type=tf.int32))
        written = put(written, place, chosen)
        ended |= chosen == pieces.END
        if tf.reduce_all(ended):
            break
    return written


def beam(model: Transformer, sources: tf.Tensor, beams: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The `beams` best translations of each source, best first: numbers of shape (sources, beams, longest),
    and the log probability of each."""
    count, size = tf.shape(sources)[0], model.vocabulary
    rows = count * beams
    memory = tf.nest.map_structure(lambda each: tf.repeat(each, beams, axis=0), model.memory(sources))
    written, past = tf.zeros((rows, model.longest), tf.int32), model.no_past(rows)
    chosen, ended = tf.fill((rows,), pieces.START), tf.zeros((rows,), tf.bool)
    total = tf.tile(tf.constant([[0.0] + [NEVER] * (beams - 1)]), (count, 1))  # all start the same
    over = tf.one_hot([pieces.PAD], size, 0.0, NEVER)  # after its end a translation costs nothing
    for place in tf.range(model.longest):
        likely, past = next_piece(model, chosen, place, past, memory)
        likely = tf.reshape(tf.where(ended[:, None], over, likely), (count, beams, size))
        total, best = tf.math.top_k(tf.reshape(total[..., None] + likely, (count, beams * size)), beams)
        parents = tf.reshape(tf.range(count)[:, None] * beams + best // size, (-1,))
        chosen = tf.reshape(best % size, (-1,))
        past = [tuple(tf.gather(each, parents) for each in own) for own in past]
        written = put(tf.gather(written, parents), place, chosen)
        ended = tf.gather(ended, parents) | (chosen == pieces.END)
        if tf.reduce_all(ended):
            break
    written = tf.reshape(written, (count, beams, model.longest))
    length = tf.reduce_sum(tf.cast(written != pieces.PAD, tf.float32), axis=-1)
    _, order = tf.math.top_k(total / length**LENGTH, beams)
    return tf.gather(written, order, batch_dims=1), tf.gather(total, order, batch_dims=1)


def next_piece(
    model: Transformer, chosen: tf.Tensor, place: tf.Tensor, past: Past, memory: Memory
) -> tuple[tf.Tensor, Past]:
    """The log probability of each piece at a position, and what the next position needs from this one."""
    scores, past = model.decode_next(chosen, place, past, memory)
    unfit = tf.reduce_sum(tf.one_hot(UNFIT, model.vocabulary, -NEVER), axis=0)
    return tf.nn.log_softmax(scores) - unfit, past


def put(written: tf.Tensor, place: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.range(written.shape[1]) == place, chosen[:, None], written)
