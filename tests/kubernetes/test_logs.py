"""Every line exactly once: through kubelets and API servers that restart, and clients that are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oarlock.records import runs
from tests.support.clusters import Cluster
from tests.support.commands import SCRIPT, Command
from tests.support.kubernetes.small import SMALL_WORDS, start_detached
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

# Until it is told that there are enough: whoever disturbs it may take as long as it takes.
LINES = """
import itertools, pathlib, time
for number in itertools.count():
    print("line", number, "\\u2713 \\t end")
    time.sleep(0.015)
    if pathlib.Path("/tmp/enough").exists():
        break
print("in all", number + 1)
"""
BAR = """
import time
print("begin")
print("\\r44%\\r45%", end="", flush=True)
while True:
    time.sleep(0.05)
"""

pytestmark = pytest.mark.slow


class Reader:
    """`oarlock logs -f`, its output in a file."""

    def __init__(self, name: str, path: Path) -> None:
        self.path = path
        with path.open("wb") as out:
            self.process = subprocess.Popen(
                [SCRIPT, "logs", "-f", name], stdout=out, stderr=subprocess.STDOUT
            )

    def lines(self, task: str) -> list[str]:
        said = self.path.read_text().splitlines()
        return [line.partition(" | ")[2] for line in said if line.startswith(f"{task} | ")]

    def until_more(self, when: str) -> None:
        """A hundred lines more than there are now, of each task."""
        for task in ("worker-0", "worker-1"):
            seen = len(self.lines(task))
            eventually(lambda: len(self.lines(task)) > seen + 100, f"lines of {task} {when}")  # noqa: B023


@pytest.fixture
def reader_of(tmp_path: Path) -> Iterator[Callable[[str, str], Reader]]:
    made: list[Reader] = []

    def start(name: str, file: str) -> Reader:
        made.append(Reader(name, tmp_path / file))
        return made[-1]

    yield start
    for reader in made:
        reader.process.kill()
        reader.process.wait()


@pytest.mark.alone
def test_each_line_comes_once_whatever_restarts(
    oarlock: Command,
    cluster: Cluster,
    tmp_path: Path,
    ended: list[str],
    reader_of: Callable[[str, str], Reader],
) -> None:
    ended.append("live-lines")
    program = tmp_path / "train.py"
    program.write_text(LINES)
    words = (*SMALL_WORDS, "-n", "2")
    assert (
        oarlock("run", "--on", "kubernetes", "-d", "--name", "live-lines", *words, str(program)).returncode
        == 0
    )
    writer, beside = reader_of("live-lines", "first"), reader_of("live-lines", "second")
    for reader in (writer, beside):
        reader.until_more("at first")

    # One of the two writes the record and the other reads along; whichever it is, it is killed.
    os.kill(writer.process.pid, signal.SIGKILL)
    third = reader_of("live-lines", "third")
    for reader in (beside, third):
        reader.until_more("after a client was killed")
    cluster.do("restart-kubelet", "1")
    cluster.do("restart-kubelet", "2")
    beside.until_more("after the kubelets restarted")
    cluster.do("stop-api")
    try:
        assert re.search(r"^live-lines +running \(.+ ago\) ", oarlock("ps").stdout, re.MULTILINE)
    finally:
        cluster.do("start-api")
    beside.until_more("after the API server was away")
    for task in ("worker-1", "worker-0"):  # the leader last: when it is done, the run is over
        done = oarlock("exec", "--task", task, "live-lines", "--", "touch", "/tmp/enough")
        assert done.returncode == 0, done.stderr

    for reader in (beside, third):
        assert reader.process.wait(300) == 0, reader.path.read_text()[-2000:]
        for task in ("worker-0", "worker-1"):
            assert_once(reader.lines(task))
    assert oarlock("status", "live-lines").stdout.startswith("live-lines succeeded")
    record = runs.find("live-lines").path
    for task in ("worker-0", "worker-1"):
        kept = (record / "logs" / "1" / f"{task}.log").read_text().splitlines()
        assert_once([line.split(" ", 1)[1] for line in kept])


def assert_once(said: list[str]) -> None:
    """All that it has said, in its order."""
    *lines, last = said
    assert last == f"in all {len(lines)}"
    assert lines == [f"line {number} \u2713 \t end" for number in range(len(lines))]


@only_in_soak
def test_a_bar_of_a_pod_is_shown_while_it_has_no_end(
    oarlock: Command, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("live-bar")
    program = tmp_path / "train.py"
    program.write_text(BAR)
    start_detached(oarlock, "live-bar", program, workers=1)
    eventually(lambda: "worker-0 | 45%\n" in oarlock("status", "live-bar").stdout, "the bar in `status`")
    assert oarlock("logs", "live-bar").stdout == "worker-0 | begin\n"
    assert oarlock("stop", "live-bar").returncode == 0
