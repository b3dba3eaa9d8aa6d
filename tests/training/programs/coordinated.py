"""A loop that schedules its steps, two workers and some parameter servers in one process.

python coordinated.py SERVERS TOTAL     prints a line of JSON; checkpoints are in CHECKPOINT_DIR
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import oarlock
from tests.support.ports import free_ports

SERVERS, TOTAL = int(sys.argv[1]), int(sys.argv[2])
ports = [f"127.0.0.1:{port}" for port in free_ports(2 + SERVERS)]
cluster = tf.train.ClusterSpec({"worker": ports[:2], "ps": ports[2:]})
# One process's servers wait for each other's threads: with too few all of them wait forever.
threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=16)
listening = [
    tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc", config=threads)
    for job in cluster.jobs
    for index in range(cluster.num_tasks(job))
]
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc"),
    variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(SERVERS),
)
oarlock.State  # noqa: B018  notes the coordinator that follows
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0, dtype=tf.int64)
    table = tf.Variable(tf.zeros((7, 2)))  # on all servers
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    old = tf_keras.Sequential([tf_keras.Input((5,)), tf_keras.layers.Dense(2, use_bias=False)])
    old_optimizer = tf_keras.optimizers.Adam()
    old_optimizer.build(old.trainable_variables)


@tf.function
def step() -> Any:
    for row in range(50):  # long enough for the loop to be ahead of the workers
        table.variables[row % SERVERS].assign_add(tf.ones_like(table.variables[row % SERVERS]) / 50)
    return count.assign_add(1, read_value=True)


def values() -> dict[str, Any]:
    weights = [variable.numpy().tolist() for variable in model.weights]
    return {
        "count": int(count),
        "table": np.concatenate([shard.numpy() for shard in table.variables]).tolist(),
        "model": weights,
        "old": [np.concatenate([shard.numpy() for shard in old.weights]).tolist()],
        "shards": [len(table.variables), len(old.weights)],
    }


state = oarlock.State(
    count=count, table=table, model=model, optimizer=optimizer, old=old, old_optimizer=old_optimizer
)
found: dict[str, Any] = {"first": state.step, "restored": values(), "ahead": 0}
for number in state.steps(TOTAL, save=10, keep=100):
    found["ahead"] = max(found["ahead"], number - int(count))
    state.report(count=coordinator.schedule(step))
found["trained"] = values()
print(json.dumps(found))
sys.stdout.flush()
os._exit(0)  # the servers never end
