"""Every measurement, side by side with the peers: about ten minutes on an idle machine with two cores.

    make bench
    .venv/bin/python bench/all.py [--only NAME] [--repeats N] [--json]

Leaves with 1 if a target is missed.
"""

from __future__ import annotations

import checkpoints
import client
import evaluator
import gang
import generation
import kills
import kubernetes_scale
import launch_kubernetes
import launch_one
import launch_tensorflow
import launch_torch
import logs
import memory
import observe
import serving
import shards
import steps
from question import main

QUESTIONS = [
    module.QUESTION
    for module in (
        *(
            launch_one,
            launch_torch,
            launch_tensorflow,
            steps,
            observe,
            evaluator,
            kills,
            checkpoints,
            gang,
            client,
            memory,
            logs,
            shards,
            generation,
            serving,
        ),
        *(launch_kubernetes, kubernetes_scale),
    )
]

if __name__ == "__main__":
    main(QUESTIONS, __doc__)
