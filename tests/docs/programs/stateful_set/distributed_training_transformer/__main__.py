"""For the StatefulSet recipe: a loop of its own on all workers; the model learns to turn sequences around."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import oarlock

WORDS, LENGTH, WIDTH = 8, 5, 16
strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    tokens = keras.Input((LENGTH,), dtype="int32")
    places = keras.ops.zeros_like(tokens) + np.arange(LENGTH, dtype="int32")
    hidden = layers.Embedding(WORDS, WIDTH)(tokens) + layers.Embedding(LENGTH, WIDTH)(places)
    hidden = hidden + layers.MultiHeadAttention(2, WIDTH)(hidden, hidden)
    model = keras.Model(tokens, layers.Dense(WORDS)(layers.LayerNormalization()(hidden)))
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
sentences = np.random.default_rng(1).integers(0, WORDS, (600, LENGTH))
batches = oarlock.data.Batches(len(sentences), 60, seed=1)


@tf.function
def train(given, wanted):
    def my_part(given, wanted):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(wanted, model(given), from_logits=True)
            loss = tf.reduce_sum(losses) / (batches.global_batch * LENGTH)
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return strategy.reduce("SUM", strategy.run(my_part, (given, wanted)), axis=None)


state = oarlock.State(model=model, optimizer=optimizer)
for step in state.steps(60, save=20, keep=10, batches=batches):
    mine = sentences[batches.mine(step)]
    state.report(loss=train(tf.constant(mine), tf.constant(mine[:, ::-1].copy())))
