"""From a body to titles: the likeliest word each time (greedy), or the best of several candidates (beam)."""

from __future__ import annotations

import tensorflow as tf
import words
from model import Memory, Summarizer

NEVER = -1e9
LENGTH = 1.0  # a title's score is divided by its length to this power: otherwise the shortest would win


def greedy(model: Summarizer, bodies: tf.Tensor) -> tf.Tensor:
    """The numbers of a title for each body, shape (bodies, title)."""
    rows, memory = tf.shape(bodies)[0], model.memory(bodies)
    titles, past = tf.zeros((rows, model.title), tf.int32), model.no_past(rows)
    chosen, ended = tf.fill((rows,), words.START), tf.zeros((rows,), tf.bool)
    for place in tf.range(model.title):
        scores, past = next_word(model, chosen, place, past, bodies, memory)
        chosen = tf.where(ended, words.PAD, tf.argmax(scores, axis=-1, output_type=tf.int32))
        titles = put(titles, place, chosen)
        ended |= chosen == words.END
        if tf.reduce_all(ended):
            break
    return titles


def beam(model: Summarizer, bodies: tf.Tensor, beams: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The `beams` best titles of each body, best first: numbers of shape (bodies, beams, title), and the log
    probability of each."""
    count, choices = tf.shape(bodies)[0], model.vocabulary + model.body
    rows = count * beams
    memory = tf.nest.map_structure(lambda each: tf.repeat(each, beams, axis=0), model.memory(bodies))
    bodies = tf.repeat(bodies, beams, axis=0)
    titles, past = tf.zeros((rows, model.title), tf.int32), model.no_past(rows)
    chosen, ended = tf.fill((rows,), words.START), tf.zeros((rows,), tf.bool)
    total = tf.tile(tf.constant([[0.0] + [NEVER] * (beams - 1)]), (count, 1))  # all start the same
    over = tf.one_hot([words.PAD], choices, 0.0, NEVER)  # after its end a title costs nothing
    for place in tf.range(model.title):
        scores, past = next_word(model, chosen, place, past, bodies, memory)
        scores = tf.reshape(tf.where(ended[:, None], over, scores), (count, beams, choices))
        total, best = tf.math.top_k(tf.reshape(total[..., None] + scores, (count, beams * choices)), beams)
        parents = tf.reshape(tf.range(count)[:, None] * beams + best // choices, (-1,))
        chosen = tf.reshape(best % choices, (-1,))
        past = tf.gather(past, parents, axis=2)
        titles = put(tf.gather(titles, parents), place, chosen)
        ended = tf.gather(ended, parents) | (chosen == words.END)
        if tf.reduce_all(ended):
            break
    titles = tf.reshape(titles, (count, beams, model.title))
    length = tf.reduce_sum(tf.cast(titles != words.PAD, tf.float32), axis=-1)
    _, order = tf.math.top_k(total / length**LENGTH, beams)
    return tf.gather(titles, order, batch_dims=1), tf.gather(total, order, batch_dims=1)


def next_word(
    model: Summarizer,
    chosen: tf.Tensor,
    place: tf.Tensor,
    past: tf.Tensor,
    bodies: tf.Tensor,
    memory: Memory,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The log probability of each word at a position: first the vocabulary's, then the body's. Also what the
    next position needs from this one."""
    x, past = model.decode_next(chosen, place, past, bodies, memory)
    shares, copies = model.copied(x, bodies, memory)
    written = tf.nn.softmax(model.written(x)[:, 0]) * tf.sigmoid(-copies)
    rows, length = tf.shape(bodies)[0], model.body
    where = tf.stack([tf.repeat(tf.range(rows)[:, None], length, axis=1), bodies], axis=-1)
    copied = tf.scatter_nd(where, shares[:, 0] * tf.sigmoid(copies), (rows, model.vocabulary + length))
    likely = tf.math.log(tf.pad(written, ((0, 0), (0, length))) + copied + 1e-12)
    unfit = [words.PAD, words.START, words.UNKNOWN]
    return likely + tf.reduce_sum(tf.one_hot(unfit, model.vocabulary + length, NEVER), axis=0), past


def put(titles: tf.Tensor, place: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.range(titles.shape[1]) == place, chosen[:, None], titles)
