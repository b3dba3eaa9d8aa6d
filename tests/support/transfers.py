"""Checkpoints that a machine fetches from a leading agent, and how to make some."""

from __future__ import annotations

from oarlock.agent.net.loop import Loop
from oarlock.agent.snapshots.transfer import Getting
from oarlock.checkpoints.manifest import FORMAT
from oarlock.checkpoints.store import Store, checksum, verify
from oarlock.run.contract import Gang
from tests.support.members import Leader


def save(store: Store, step: int, content: bytes = b"weights" * 1000) -> str:
    """Commit a checkpoint of one file, and give its name."""
    draft = store.draft(step, 1)
    draft.mkdir(parents=True)
    (draft / "state").write_bytes(content)
    file = dict(zip(("size", "crc32"), checksum(draft / "state")))
    manifest = {"format": FORMAT, "run": "led", "generation": 1, "step": step, "files": {"state": file}}
    return store.commit(draft, manifest).name


def resuming_from(names: list[str], files: str = "") -> Gang:
    """A generation that resumes from these checkpoints and files."""
    return Gang(run="led", generation=2, tasks=(), addresses={}, checkpoints=names, files=files)


def get(leader: Leader, ours: Store, names: list[str]) -> str | None:
    """Fetch the first of these that can be fetched: what went wrong, or None."""
    loop, answers = Loop(), list["str | None"]()
    getting = Getting(loop, leader.address, leader.token, str(ours.folder), patience=20)
    loop.after("patience", 60, lambda: answers.append("no answer"))
    getting.get(resuming_from(names), answers.append)
    while not answers:
        loop.turn()
    return answers[0]


def whole(store: Store) -> list[str]:
    """The names of the checkpoints whose files are as their manifests say."""
    return [one.name for one in store.checkpoints() if verify(one) is None]
