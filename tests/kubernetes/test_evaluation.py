"""An evaluator on another node than the leader, whose claim only the leader mounts: it gets every checkpoint
over the wire, and `oarlock evaluate` gives its scores once more, here."""

from __future__ import annotations

import json
from pathlib import Path

from oarlock.engines.kubernetes.api.client import Api
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import driving, nodes_of
from tests.support.kubernetes.small import SMALL

# The evaluator's pod loses its container once; the last digits show that it restored what was trained.
PROGRAM = """
import os, signal, time, oarlock
me = oarlock.current()
state = oarlock.State(height=0.0, large=[0.0] * 100_000)
if me.role == "evaluator":
    for step in state.follow():
        mark = me.eval / "killed"
        if me.is_launched and "OARLOCK_EVALUATE" not in os.environ and step >= 40 and not mark.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        state.report(height=state.height)
else:
    for step in state.steps(60, save=20, keep=100):
        state._session.finish()
        state.height += 1 / 3
        time.sleep(0.05)
"""


def test_an_evaluator_without_the_volume_scores_every_checkpoint(
    cluster: Cluster, api: Api, tmp_path: Path
) -> None:
    height, heights = 0.0, {}
    for step in range(1, 61):
        height += 1 / 3
        if step % 20 == 0:
            heights[step] = height
    with driving(tmp_path, cluster.user, api) as driver:
        folder = driver.job(PROGRAM, roles={"worker": SMALL, "evaluator": SMALL})
        run = driver.start(folder).succeed(300)
        assert len(nodes_of(api, run.name)) == 2
        record = driver.record(run.name)
        reports = [
            event for event in record.events() if event.get("task") == "evaluator-0" and "height" in event
        ]
        assert {report["step"]: report["height"] for report in reports} == heights, run.told
        state = record.state()
        assert (state.tasks["worker-0"].starts, state.tasks["evaluator-0"].starts) == (1, 2)
        assert "scored: height " in run.out
        again = driver.call("evaluate", f"{run.name}@40", "--json")
        assert again.returncode == 0, again.stderr
        (score,) = json.loads(again.stdout)["scores"]
        assert (score["step"], score["metrics"]) == (40, {"height": heights[40]})
        newest = driver.call("evaluate", run.name)
        assert newest.stdout.splitlines()[1].split() == ["60", "20"], newest.stdout
