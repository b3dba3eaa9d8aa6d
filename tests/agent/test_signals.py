"""Which signals a task gets when its run stops: programs take a second SIGTERM for "now"."""

from __future__ import annotations

from pathlib import Path

from oarlock.engines.local import local_engine
from tests.support.gangs import Gang
from tests.support.waiting import eventually

TASKS = 7
REPEATS = 3
# A task and its child each count the signals as they arrive, not the calls of a handler, which may be fewer.
COUNTS = """
import os, pathlib, signal, sys, time
rank = os.environ["OARLOCK_RANK"]
is_child = os.fork() == 0
who = ("child-" if is_child else "task-") + rank
arrived, arrives = os.pipe()
os.set_blocking(arrives, False)
os.set_blocking(arrived, False)
signal.set_wakeup_fd(arrives)
signal.signal(signal.SIGTERM, lambda *_: None)
pathlib.Path("ready-" + who).touch()
seen = b""
deadline = time.monotonic() + 100
while not pathlib.Path("go").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
    try:
        seen += os.read(arrived, 100)
    except BlockingIOError:
        continue
    pathlib.Path("got-" + who).touch()
pathlib.Path("count-" + who).write_text(str(seen.count(signal.SIGTERM)))
if is_child:
    os._exit(0)
os.wait()
"""


def test_each_stop_sends_one_sigterm_to_each_process(home: Path, tmp_path: Path) -> None:
    who = [f"{kind}-{rank}" for kind in ("task", "child") for rank in range(TASKS)]
    for number in range(REPEATS):
        folder = tmp_path / str(number)
        gang = Gang(folder, COUNTS, roles={"worker": TASKS}, limits={"grace": "100s"})
        until_all(folder, "ready", who)
        local_engine.stop(gang.run)
        until_all(folder, "got", who)
        (folder / "go").touch()
        assert gang.end().state == "stopped"
        counts = {name: (folder / f"count-{name}").read_text() for name in who}
        assert counts == dict.fromkeys(who, "1")


def until_all(folder: Path, what: str, who: list[str]) -> None:
    def are_there() -> bool:
        return all((folder / f"{what}-{name}").exists() for name in who)

    eventually(are_there, f"file {what} of every process")
