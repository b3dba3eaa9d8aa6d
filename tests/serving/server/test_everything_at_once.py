"""A server to which everything happens at once, by counts and not by time. `soak` has the long one."""

from __future__ import annotations

from pathlib import Path

from tests.support.model_servers import clients, model_server, publish
from tests.support.server_faults import Faults, half_open
from tests.support.soaking import moments


def test_everything_at_once_costs_only_requests_in_killed_processes(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    publish(folder, 1)
    with model_server(folder, tmp_path, replicas=2, queue=300.0, deadline=300.0) as server:
        with half_open(server, 8), clients(server, 8, range(1, 10_000), is_rude=True) as asking:
            faults = Faults(server, folder, asking, seed=7)
            for _ in range(moments(1)):
                faults.kill()
                faults.publish()
                faults.kill()
                faults.scale(3)
                faults.publish_broken()
                faults.kill()
                faults.publish()
                faults.scale(2)
            faults.until_answers(20)
        faults.check()
        assert all(one.refused for one in asking)
        assert server.stop() == 0
