"""Every message of the wire protocol, bent in every way: the leading agent goes on serving the others."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

from members import Leader, Member, attend, leading

from oarlock.agent.wire import pack

JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    2**63,
    1e308,
    "",
    "x" * 1000,
    [],
    {},
    [[]],
    {"a": {}},
    "worker-0",
    [None],
]


def messages(member: Member, generation: int) -> list[dict[str, Any]]:
    outcome = {
        "name": "worker-1",
        "launch": 1,
        "began": 1.0,
        "code": None,
        "signal": None,
        "ours": False,
        "error": None,
        "failed_at": None,
    }
    return [
        {"status": member.status(generation=generation, tasks=[outcome])},
        {"events": [{"kind": "report", "t": 1.0, "task": "worker-1", "step": 1, "loss": 0.5}]},
        {"events": [{"kind": "task", "t": 1.0, "task": "worker-1", "state": "started", "pid": 1}]},
        {
            "events": [
                {"kind": "error", "t": 1.0, "task": "worker-1", "type": "E", "message": "m", "where": "w"}
            ]
        },
        {"events": [{"kind": "note", "t": 1.0, "text": "hello"}]},
        {"events": [{"kind": "ready", "t": 1.0, "warm": True, "seconds": 1.0}]},
        {"beat": 1},
    ]


def bend(message: Any, chance: random.Random) -> Any:
    """Replace, remove or add something, somewhere."""
    if chance.random() < 0.25:
        return chance.choice(JUNK)
    if isinstance(message, dict) and message:
        bent = dict(message)
        key = chance.choice(list(bent))
        how = chance.randrange(3)
        if how == 0:
            del bent[key]
        elif how == 1:
            bent[str(chance.choice(JUNK))[:20]] = chance.choice(JUNK)
        else:
            bent[key] = bend(bent[key], chance)
        return bent
    if isinstance(message, list) and message:
        at = chance.randrange(len(message))
        return [*message[:at], bend(message[at], chance), *message[at + 1 :]]
    return chance.choice(JUNK)


def test_bent_messages_of_a_member_cost_its_connection_and_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(1)
    with leading(tmp_path, machines=3, restarts=10**6) as leader:
        one, two = Member(leader, "machine-1"), Member(leader, "machine-2")
        attend([one, two], lambda: any(wish["do"] == "run" for wish in one.wishes))
        _bend_greetings(leader, chance, 300)
        for _ in range(1500):
            generation = one.wishes[-1]["generation"] if one.wishes else 1
            message = bend(copy.deepcopy(chance.choice(messages(one, generation))), chance)
            frame = pack(message) if isinstance(message, dict) else pack({"status": message})
            try:
                one.sock.sendall(frame)
            except OSError:
                pass
            if chance.random() < 0.1 or one.is_closed:
                one.close()
                one = Member(
                    leader, "machine-1", uid=str(one.hello["uid"]), born=float(str(one.hello["born"]))
                )
                one.until(lambda member: member.wishes or member.is_closed, "wish")
        last = Member(leader, "machine-1")
        last.until(lambda member: member.wishes, "wish")
        assert leader.process.poll() is None, leader.log()[-3000:]
        assert "Traceback" not in leader.log()


def _bend_greetings(leader: Leader, chance: random.Random, count: int) -> None:
    for _ in range(count):
        member = Member(leader, "machine-9")  # nobody's name: a bent age must not refuse the real ones
        member.hello = bend(dict(member.hello), chance)
        try:
            member.sock.settimeout(5)
            while not member.is_closed and not member.wishes:
                member.feed()
        except (OSError, AssertionError, AttributeError, TypeError):
            pass  # closed on us, or a greeting so bent that we cannot send it
        member.close()
