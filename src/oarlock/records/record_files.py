"""Where each file of a run's record is.

    $OARLOCK_HOME/runs/<run>/
        job.yaml            the job as it ran
        agent.json          the spec that its agents were started with
        events.jsonl        everything that happened, one JSON object per line
        folded.json         the state after most of these, if they are many
        result.json         the final state, once the run has ended
        cluster.json        the cluster, if the run was sent to one
        logs/<generation>/<task>.log,  agent.log      (long ones in segments)
        logs/<generation>/<task>.unfinished           the line that a task has begun and not ended
        checkpoints/  model/  tensorboard/
        serving.json        the settings of a model server, if the run is one; serving.ready, once it answers
        lock                held by the agent for as long as it has the run

Records are private: folders have mode 0700. agent.json has a version, which also covers job.yaml and
cluster.json.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_ROOM = 64 * 1024  # bytes


@dataclass(frozen=True)
class RecordFiles:
    """The files of one record."""

    path: Path

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def job_file(self) -> Path:
        """The job as it ran. It is written once, when the run is created."""
        return self.path / "job.yaml"

    @property
    def spec_file(self) -> Path:
        """The spec that the agents were started with."""
        return self.path / "agent.json"

    @property
    def events_file(self) -> Path:
        """Everything that happened, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def state_cache_file(self) -> Path:
        """The state after most events of a long run (`state_cache.py`); may be missing, and be deleted."""
        return self.path / "folded.json"

    @property
    def result_file(self) -> Path:
        """The final state; absent until the run has ended."""
        return self.path / "result.json"

    @property
    def scores_file(self) -> Path:
        """The scores that `oarlock evaluate` added, as events; absent if it was never used."""
        return self.path / "scores.jsonl"

    @property
    def cluster_file(self) -> Path:
        """The cluster that the run was sent to; absent for runs on this machine."""
        return self.path / "cluster.json"

    @property
    def serving_file(self) -> Path:
        """The settings of the model server that the run is; absent for any other run."""
        return self.path / "serving.json"

    @property
    def agent_log(self) -> Path:
        """What the agents wrote."""
        return self.path / "agent.log"

    @property
    def logs(self) -> Path:
        """The folder with one folder of logs per generation."""
        return self.path / "logs"

    @property
    def lock_file(self) -> Path:
        """The file whose lock says that a process has the run."""
        return self.path / "lock"

    def log_file(self, generation: int, task: str) -> Path:
        """Return the path of a task's log (its first segment)."""
        return self.logs / str(generation) / f"{task}.log"

    def keep_room(self) -> None:
        """Reserve space for the verdict, in case the disk is full by then; a disk that is full now raises."""
        with (self.path / "room").open("wb") as room:
            room.write(os.urandom(_ROOM))
            room.flush()
            os.fsync(room.fileno())
