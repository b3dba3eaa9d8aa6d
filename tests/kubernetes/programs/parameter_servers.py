"""Written for TF_CONFIG with parameter servers: the chief counts to 20 on them, servers and workers serve for
ever, and an evaluator that nobody waits for looks on. Nothing of ours."""

import json
import os
import sys

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
role = config["task"]["type"]
if role == "evaluator":
    print("the evaluator sees", *sorted(config["cluster"]))
    sys.exit()
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if role in ("worker", "ps"):
    spec = resolver.cluster_spec()
    tf.distribute.Server(spec, job_name=role, task_index=resolver.task_id, protocol="grpc").join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0, dtype=tf.int64)
assert "/job:ps/" in count.device, count.device


@tf.function
def step():
    count.assign_add(1)


for _ in range(20):
    coordinator.schedule(step)
coordinator.join()
print(f"counted to {int(count.numpy())} on {count.device.partition('/replica')[0]}")
sys.stdout.flush()
os._exit(0)  # the coordinator's threads would wait for the servers, which never end
