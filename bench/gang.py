"""How fast do a thousand agents become one gang, and what does that cost the leading one?

    .venv/bin/python bench/gang.py [--repeats N] [--json]

One process opens the connections and speaks the real protocol on each: challenge, proof, status. The leading
agent is a real one. "Formed" is when it has formed the generation; "all told" is when every connection has
received and decoded the thousand addresses, in that one process.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from question import Question, Row, Target, main, progress

sys.path.append(str(Path(__file__).parents[1]))
from tests.support.members import Member, attend, leading

_AGENTS = 1000
_LIMIT = 60.0


def measure(repeats: int) -> list[Row]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    taken = []
    for turn in range(repeats):
        progress(f"gang of {_AGENTS}, turn {turn + 1} of {repeats}")
        taken.append(_form())
    formed, told, memory = map(list, zip(*taken))
    return [
        Row(f"{_AGENTS} agents, first connection to formed", "s", formed, target=Target(3.0, of="ours")),
        Row(f"{_AGENTS} agents, first connection to all told", "s", told, target=Target(3.0, of="ours")),
        Row("the leading agent's peak memory", "MB", memory, target=Target(200, of="ours")),
    ]


def _form() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder, leading(Path(folder), machines=_AGENTS + 1) as leader:
        leader.until(lambda: any(event["kind"] == "ready" for event in leader.events()), "ready leader")
        began = time.time()
        members: list[Member] = []
        for index in range(1, _AGENTS + 1):
            members.append(Member(leader, f"machine-{index}"))
            if index % 50 == 0:  # as they come: a thousand greetings at once would wait for this one process
                newest = members[-50:]
                attend(newest, partial(_are_told, newest), _LIMIT)
        if not attend(members, lambda: all(one.wishes[-1]["do"] == "run" for one in members), _LIMIT):
            raise TimeoutError(f"no gang of {_AGENTS} within {_LIMIT:g} s")
        told = time.time()
        [formed] = [event["t"] for event in leader.events() if event["kind"] == "generation"]
        return formed - began, told - began, leader.peak_memory() / 2**20


def _are_told(members: list[Member]) -> bool:
    return all(one.wishes for one in members)


QUESTION = Question("gang", "A gang of a thousand agents", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
