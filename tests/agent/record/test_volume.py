"""Output at volume: every line, in order, none torn, and an agent that stays small."""

from __future__ import annotations

from pathlib import Path

from tests.support.gangs import Gang
from tests.support.soaking import moments

LINES = 20_000 * moments(10)
PROGRAM = f"""
import os, sys
name = os.environ["POD_NAME"].encode()
write = sys.stdout.buffer.write
for start in range(0, {LINES}, 1000):
    write(b"".join(b"%s line %d of many\\n" % (name, number) for number in range(start, start + 1000)))
sys.stdout.flush()
"""


def test_four_tasks_print_many_lines_each(home: Path, tmp_path: Path) -> None:
    gang = Gang(
        tmp_path / "job", PROGRAM, roles={"worker": 4}, limits={"grace": "1h"}
    )  # the last may take it
    agent = gang.until(lambda gang: gang.state.agent, "agent").state.agent
    status = Path(f"/proc/{agent}/status")
    peak = 0
    while gang.run.is_held():
        try:
            peak = max(peak, int(status.read_text().split("VmHWM:")[1].split()[0]))
        except (OSError, IndexError):
            break
        gang.watch.run.is_held()
    assert gang.run.state().state == "succeeded"
    assert 0 < peak < 100 * 1024, f"the agent used {peak} KiB"
    for index in range(4):
        expected = 0
        with (gang.run.path / "logs" / "1" / f"worker-{index}.log").open("rb") as log:
            for line in log:
                assert line.endswith(b" worker-%d line %d of many\n" % (index, expected)), line
                expected += 1
        assert expected == LINES


def test_output_after_the_last_step_and_odd_bytes_are_kept(home: Path, tmp_path: Path) -> None:
    program = r"""
import atexit, sys, oarlock
oarlock.current().report(1)
sys.stdout.buffer.write(b"bar\r50%\r100%\n\xff\xfe not text\n" + b"x" * 10_000_000 + b"\n")
atexit.register(lambda: print("from an exit handler"))
print("no end of line", end="")
"""
    gang = Gang(tmp_path / "job", program, roles={"worker": 1})
    assert gang.end().state == "succeeded"
    lines = (gang.run.path / "logs" / "1" / "worker-0.log").read_bytes().split(b"\n")
    texts = [line.partition(b" ")[2] for line in lines]
    assert texts[:2] == [b"bar\r50%\r100%", b"\xff\xfe not text"]
    long = b"".join(text.removesuffix(b" [line continues]") for text in texts[2:-2])
    assert long == b"x" * 10_000_000
    assert texts[-2] == b"no end of linefrom an exit handler"
