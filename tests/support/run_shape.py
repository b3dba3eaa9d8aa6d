"""The fields of a run as `status --json`, `ps --json` and docs/cli.md have them."""

from __future__ import annotations

STATE = {
    *("run", "job", "engine", "state", "created", "started", "ended", "updated", "generation", "restarts"),
    *("agent", "code", "reason", "failure", "workers", "problem", "straggler", "tasks", "notes", "time"),
    *("warnings", "scores"),
    *("folders", "gpus", "host", "version", "images"),
}
TIME = {"total", "start", "rendezvous", "step", "checkpoint", "lost", "waiting", "goodput"}
TASK = {
    *("name", "state", "pid", "code", "starts", "step", "total", "rate", "reported", "busy", "metrics"),
    *("eta", "observed", "gpu"),
}
SCORE = {"latest", "latest_step", "best", "best_step"}
FOLDERS = {"record", "program", "data", "checkpoints", "eval", "model", "logs"}
