"""From a body to titles: the likeliest word each time (greedy), or the best of several beginnings (beam)."""

import tensorflow as tf
import words

NEVER = -1e9
LENGTH = 1.0  # a title's score is divided by its length to this power: else the shortest would win


def greedy(model, bodies):
    """The numbers of a title for each body, shape (bodies, title)."""
    encoded = model.encode(bodies)
    titles = started(tf.shape(bodies)[0], model)
    ended = tf.zeros_like(titles[:, 0], tf.bool)
    for place in tf.range(model.title):
        scores = next_word(model, titles, place, bodies, encoded)
        chosen = tf.where(ended, words.PAD, tf.argmax(scores, axis=-1, output_type=tf.int32))
        titles = put(titles, place + 1, chosen)
        ended |= chosen == words.END
        if tf.reduce_all(ended):
            break
    return titles[:, 1:]


def beam(model, bodies, beams):
    """The `beams` best titles of each body, best first: numbers of shape (bodies, beams, title), and for each
    the logarithm of its probability."""
    count, choices = tf.shape(bodies)[0], model.vocabulary + model.body
    bodies = tf.repeat(bodies, beams, axis=0)
    encoded = model.encode(bodies)
    titles = started(count * beams, model)
    ended = tf.zeros((count * beams,), tf.bool)
    total = tf.tile(tf.constant([[0.0] + [NEVER] * (beams - 1)]), (count, 1))  # all begin the same
    over = tf.one_hot([words.PAD], choices, 0.0, NEVER)  # after its end a title costs nothing
    for place in tf.range(model.title):
        scores = next_word(model, titles, place, bodies, encoded)
        scores = tf.reshape(tf.where(ended[:, None], over, scores), (count, beams, choices))
        total, best = tf.math.top_k(tf.reshape(total[..., None] + scores, (count, beams * choices)), beams)
        parents = tf.reshape(tf.range(count)[:, None] * beams + best // choices, (-1,))
        chosen = tf.reshape(best % choices, (-1,))
        titles = put(tf.gather(titles, parents), place + 1, chosen)
        ended = tf.gather(ended, parents) | (chosen == words.END)
        if tf.reduce_all(ended):
            break
    titles = tf.reshape(titles[:, 1:], (count, beams, model.title))
    length = tf.reduce_sum(tf.cast(titles != words.PAD, tf.float32), axis=-1)
    _, order = tf.math.top_k(total / length**LENGTH, beams)
    return tf.gather(titles, order, batch_dims=1), tf.gather(total, order, batch_dims=1)


def next_word(model, titles, place, bodies, encoded):
    """The logarithm of each word's probability at a place: first the vocabulary's, then the body's."""
    x = model.decode(titles[:, : model.title], bodies, encoded)[:, place][:, None]
    shares, copies = model.copied(x, bodies, encoded)
    written = tf.nn.softmax(model.written(x)[:, 0]) * tf.sigmoid(-copies)
    rows, length = tf.shape(bodies)[0], model.body
    where = tf.stack([tf.repeat(tf.range(rows)[:, None], length, axis=1), bodies], axis=-1)
    copied = tf.scatter_nd(where, shares[:, 0] * tf.sigmoid(copies), (rows, model.vocabulary + length))
    likely = tf.math.log(tf.pad(written, ((0, 0), (0, length))) + copied + 1e-12)
    unfit = [words.PAD, words.START, words.UNKNOWN]
    return likely + tf.reduce_sum(tf.one_hot(unfit, model.vocabulary + length, NEVER), axis=0)


def started(rows, model):
    starts = tf.fill((rows, 1), words.START)
    return tf.ensure_shape(tf.pad(starts, ((0, 0), (0, model.title))), (None, model.title + 1))


def put(titles, place, chosen):
    return tf.where(tf.range(titles.shape[1]) == place, chosen[:, None], titles)
