"""A model server under 64 clients for ten minutes, with everything done to it: prints what it cost.

    OARLOCK_MOMENTS=1 .venv/bin/python -m pytest -s soak/test_served_models.py

A replica is killed every 5 s and a version published every 20 s; every tenth body is nonsense, and 100
connections never finish their requests. SECONDS in the environment shortens it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.model_servers import clients, model_server, publish
from tests.support.server_faults import Faults, half_open, memory

SECONDS = float(os.environ.get("SECONDS", "600"))
KILL, PUBLISH = 5.0, 20.0  # seconds
GROWTH = 64 << 20  # bytes: the pages of a heap that is in use settle within this


@pytest.mark.soak
@pytest.mark.timeout(3 * SECONDS + 600)
def test_ten_minutes_of_everything(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    publish(folder, 1)
    with model_server(folder, tmp_path, replicas=2, queue=60.0, deadline=120.0) as server:
        with half_open(server, 100), clients(server, 64, range(1, 100_000), is_rude=True) as asking:
            faults = Faults(server, folder, asking, seed=int(time.time()))
            faults.publish()  # by now everything has been loaded once
            faults.scale(2)  # and the replicas of the version before it are gone
            used = memory(server)
            began = time.monotonic()
            kills = publishes = began
            while (now := time.monotonic()) < began + SECONDS:
                if now >= publishes:
                    publishes = now + PUBLISH
                    faults.publish_broken() if faults.version % 5 == 0 else faults.publish()
                if now >= kills:
                    kills = now + KILL
                    faults.kill()
                time.sleep(0.1)
            faults.scale(2)
            grown = memory(server) - used
        answers, lost = sum(one.answers for one in asking), sum(len(one.failures) for one in asking)
        print(
            f"\n{answers} answers, {sum(one.refused for one in asking)} refusals of nonsense, {lost} lost in "
            f"{faults.kills} killed replicas, {faults.version} versions, memory {grown / 2**20:+.1f} MiB"
        )
        faults.check()
        assert lost <= 64 * faults.kills
        assert grown < GROWTH
