"""What a run has left on its claim, read where the test cluster keeps its volumes: without asking the run,
its pods or the API server, so that looking disturbs nothing and no fault is in the way.

Programs say `starts at STEP with SUM`, `step STEP` for each, and `ends with SUM`; they keep all checkpoints.
SUMS makes TOTAL steps, and saves every so many: TOTAL SAVE [GENERATION]. It does not end before that one:
whoever disturbs it may take as long as it takes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from oarlock.checkpoints.store import Checkpoint, Store
from oarlock.engines.kubernetes.api.client import Api
from tests.support.waiting import eventually

SUMS = """
import sys, time, oarlock
total, save, last = (*map(int, sys.argv[1:]), 1)[:3]
state = oarlock.State(sum=0)
print("starts at", state.step, "with", state.sum)
total = max(total, state.step + 20) if oarlock.current().generation >= last else 10**6
for step in state.steps(total, save=save, keep=1_000_000):
    print("step", step)
    state.sum += step
    time.sleep(0.05)
print("ends with", state.sum)
"""
QUIET = ("report", "checkpoint")
_AT_ONCE = 0.2  # seconds from the word that a generation forms to the raised fence


class Books:
    """Of one run. `claim` is called as its job is."""

    def __init__(self, admin: Api, claim: str, run: str) -> None:
        # After the API server was away it takes a while until volumes are made again.
        bound = eventually(
            lambda: admin.get("PersistentVolumeClaim", claim)["spec"].get("volumeName"), "its volume"
        )
        volume = admin.http.get(f"api/v1/persistentvolumes/{bound}").json()
        self.folder = Path(volume["spec"]["hostPath"]["path"]) / "runs" / run

    @property
    def events(self) -> list[dict[str, Any]]:
        try:
            *whole, _ = (self.folder / "events.jsonl").read_text().split("\n")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in whole]

    @property
    def formed(self) -> dict[int, float]:
        """When each generation did."""
        return {event["generation"]: event["t"] for event in self.events if event["kind"] == "generation"}

    @property
    def generation(self) -> int:
        return max(self.formed, default=0)

    @property
    def restarts(self) -> int:
        """That somebody is to blame for."""
        return sum(1 for event in self.events if event["kind"] == "restart" and not event.get("forgiven"))

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return Store(self.folder / "checkpoints").checkpoints()

    def said(self, generation: int) -> list[tuple[str, str]]:
        """Time and text of each line of the leader's task."""
        log = self.folder / "logs" / str(generation) / "worker-0.log"
        *lines, _ = log.read_text().split("\n") if log.exists() else [""]  # whole ones
        return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]

    def start(self, generation: int) -> int | None:
        for _, text in self.said(generation):
            if found := re.fullmatch(r"starts at (\d+) with (\d+)", text):
                assert int(found[2]) == sum(range(int(found[1]))), text
                return int(found[1])
        return None

    def steps(self, generation: int) -> list[int]:
        return [int(text[5:]) for _, text in self.said(generation) if text.startswith("step ")]

    def is_stepping(self, generation: int) -> bool:
        """This one or a later one, with everybody."""
        told = self.events
        formed = [number for number, event in enumerate(told) if event["kind"] == "generation"]
        if not formed or told[formed[-1]]["generation"] < generation:
            return False
        reporting = {event["task"] for event in told[formed[-1] :] if event["kind"] == "report"}
        return reporting >= set(told[formed[-1]]["tasks"])

    def since(self, t: float) -> str:
        """What happened, and how many seconds after that."""
        told = [event for event in self.events if event["t"] >= t and event["kind"] not in QUIET]
        return "\n".join(
            f"{event['t'] - t:6.2f} "
            + " ".join(f"{key}={value}" for key, value in event.items() if key != "t")
            for event in told
        )

    def audit(self, lost: int = 1_000_000) -> None:
        """Every step accounted for: each generation begins where the newest checkpoint of all before it is,
        makes every step from there, and none was committed by an earlier one once the next had formed.
        `lost` is how many steps may have been made in vain in any generation."""
        formed = self.formed
        for generation in formed:
            begun, steps = self.start(generation), self.steps(generation)
            if begun is None:
                assert not steps  # ended before it had begun
                continue
            older = [one.step for one in self.checkpoints if one.generation < generation]
            assert begun == max(older, default=0), (generation, begun, older)
            assert steps == list(range(begun, begun + len(steps))), generation
            before = [last for earlier in formed if earlier < generation for last in self.steps(earlier)]
            assert max(before, default=-1) + 1 - begun <= lost, (generation, begun, max(before))
        self.nobody_came_late()

    def nobody_came_late(self) -> None:
        for checkpoint in self.checkpoints:
            later = [t for generation, t in self.shut_out.items() if generation > checkpoint.generation]
            committed = checkpoint.path.stat().st_ctime
            assert committed <= min(later, default=float("inf")), (checkpoint.name, self.formed)

    @property
    def shut_out(self) -> dict[int, float]:
        """When each generation did that to those before it: of the latest it is known to the moment."""
        found = {generation: t + _AT_ONCE for generation, t in self.formed.items()}
        fence = Store(self.folder / "checkpoints").fence()
        if fence is not None and fence[1] in found:
            found[fence[1]] = (self.folder / "checkpoints" / ".fence").stat().st_ctime
        return found

    def verdict(self, total: int | None = None) -> None:
        """It ended well, with the right result: of `total` steps, or of as many as it made."""
        total = self.steps(self.generation)[-1] + 1 if total is None else total
        ends = [event for event in self.events if event["kind"] == "end"]
        assert [end["state"] for end in ends] == ["succeeded"], ends
        assert f"ends with {sum(range(total))}" in [text for _, text in self.said(self.generation)]
