"""Written for TF_CONFIG with parameter servers: the chief counts to 20 on them, servers and workers serve for
ever, and an evaluator looks on, which the launcher does not wait for, but the chief. Nothing of ours."""

import json
import os
import socket
import sys
import time

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
role = config["task"]["type"]
DOOR = 9010  # of the chief, beside TensorFlow's own
if role == "evaluator":
    print("the evaluator sees", *sorted(config["cluster"]))
    chief = config["cluster"]["chief"][0].rpartition(":")[0]
    deadline = time.monotonic() + 250
    while True:
        try:
            socket.create_connection((chief, DOOR), timeout=5).close()
            sys.exit()
        except OSError:
            assert time.monotonic() < deadline, "the chief has no door"
            time.sleep(0.05)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if role in ("worker", "ps"):
    spec = resolver.cluster_spec()
    tf.distribute.Server(spec, job_name=role, task_index=resolver.task_id, protocol="grpc").join()
door = socket.create_server(("", DOOR))
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
door.settimeout(100)
door.accept()  # the run is over with us: the evaluator is to have said its words
os._exit(0)  # the coordinator's threads would wait for the servers, which never end
