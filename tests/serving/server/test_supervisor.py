"""A model server in real processes: killed, updated, scaled and stopped while clients ask it."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.model_servers import BROKEN, Client, ModelServer, clients, model_server, publish, refusal
from tests.support.waiting import eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    publish(models, 1)
    return models


def test_it_announces_a_request_that_works(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        assert server.told.version == 1
        status, text = refusal(server, server.told.curl.rpartition(" -d ")[2].strip("'").encode())
        assert status == 200, text
        assert server.ask(1, 2)[0] == 3
        assert server.stop() == 0


def test_a_replica_that_dies_is_replaced_and_only_its_request_is_lost(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path, replicas=2) as server:
        server.ask(1, 2)
        eventually(lambda: len(server.replicas) == 2, "two replicas")
        with clients(server, 4, (1,)) as asking:
            for _ in range(3):
                victim = server.replicas[0]
                victim.kill()
                eventually(_replaced(server, victim.pid), "another replica")
            eventually(lambda: all(one.answers > 20 for one in asking), "answers")
        assert not any(one.wrong for one in asking)
        # A client has one request at a time in flight, so that each death costs it one at most.
        assert all(len(one.failures) <= 3 for one in asking), [one.failures for one in asking]
        assert "was killed by signal 9 (SIGKILL); another one starts" in server.said


def test_connections_that_wait_survive_the_only_replica(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        server.ask(1, 2)
        assert _killing(server) is None
        assert server.ask(2, 3)[0] == 5  # the same socket: the kernel kept the connection until it was taken


def test_a_new_version_takes_over_without_a_failed_request(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path, replicas=2) as server, clients(server, 4, (1, 2, 3)) as asking:
        eventually(lambda: all(one.answers for one in asking), "answers of version 1")
        for factor in (2, 3):
            publish(folder, factor)
            eventually(_all_have_seen(asking, factor), "the new version")
        eventually(lambda: len(server.replicas) == 2, "end of the old replicas")
    assert not any(one.failures or one.wrong for one in asking), [one.failures for one in asking]
    assert "serving sums, version 3" in server.said


def test_a_version_that_does_not_load_leaves_the_old_one(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server, clients(server, 2, (1, 3)) as asking:
        eventually(lambda: all(one.answers for one in asking), "answers")
        publish(folder, 2, program=BROKEN)
        server.until_said("version 2 of sums does not load")
        assert "the weights are missing" in server.said
        assert "version 1 stays" in server.said
        publish(folder, 3)
        eventually(lambda: all(3 in one.versions for one in asking), "version 3")
    assert not any(one.failures or one.wrong for one in asking), [one.failures for one in asking]
    assert server.said.count("does not load") == 1


def test_at_the_start_an_older_version_takes_the_place_of_one_that_does_not_load(
    folder: Path, tmp_path: Path
) -> None:
    publish(folder, 2, program=BROKEN)
    with model_server(folder, tmp_path) as server:
        assert server.ask(1, 2)[0] == 3
        assert "version 2 of sums does not load" in server.said


def test_a_model_that_does_not_load_is_the_end_with_the_reason_last(tmp_path: Path) -> None:
    publish(tmp_path / "models", 1, program=BROKEN)
    with model_server(tmp_path / "models", tmp_path) as server:
        assert server.process.wait(120) == 1
        last = server.said.strip().splitlines()[-1]
        assert last.startswith("version 1 of sums does not load")
        assert "the weights are missing" in last


def test_a_model_that_kills_its_process_while_loading_is_refused(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        server.ask(1, 2)
        publish(folder, 2, program="import os\n\ndef load(folder):\n    os.kill(os.getpid(), 9)\n")
        server.until_said("version 2 of sums does not load: it was killed by signal 9")
        assert server.ask(1, 2)[0] == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"versions": "7"}, "has no version 7; it has 1"),
        ({"weights": {1: 1.0, 9: 1.0}}, "has no version 9; it has 1"),
        ({"source": "/nowhere"}, "/nowhere holds no model"),
        ({"host": "192.0.2.1"}, "192.0.2.1 is not an address of this machine"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(
    settings: dict[str, object], said: str, folder: Path, tmp_path: Path
) -> None:
    with model_server(folder, tmp_path, **settings) as server:
        assert server.process.wait(120) == 1
        assert said in server.said
        assert "Traceback" not in server.said


def test_a_port_that_is_taken_is_said_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with model_server(folder, tmp_path, port=port) as server:
            assert server.process.wait(120) == 1
            assert f"port {port} on 127.0.0.1 is in use by another process" in server.said
            assert "Traceback" not in server.said


def test_versions_share_requests_by_weight(folder: Path, tmp_path: Path) -> None:
    publish(folder, 2)
    with model_server(folder, tmp_path, weights={1: 80, 2: 20}) as server:
        found = [server.ask(1, 2)[0] for _ in range(300)]
        assert set(found) == {3, 6}
        assert 10 < found.count(6) < 130  # 60 on average; beyond this once in 1e11
        assert server.ask(1, 2, version=1)[0] == 3
        assert server.ask(1, 2, version=2)[0] == 6
        server.change(weights={1: 0, 2: 1})
        eventually(lambda: {server.ask(1, 2)[0] for _ in range(20)} == {6}, "version 2 alone")


def test_the_best_version_is_served_and_a_worse_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    publish(folder, 1, scores={"accuracy": 0.9})
    publish(folder, 2, scores={"accuracy": 0.7})
    with model_server(folder, tmp_path, versions="best") as server:
        assert server.ask(1, 2)[0] == 3
        publish(folder, 3, scores={"accuracy": 0.8})
        publish(folder, 4, scores={"accuracy": 0.95})
        server.until_factor(4)
        assert "version 3" not in server.said


def test_a_number_pins_the_version_until_the_settings_change(folder: Path, tmp_path: Path) -> None:
    publish(folder, 2)
    with model_server(folder, tmp_path, versions="1") as server:
        assert server.ask(1, 2)[0] == 3
        server.change(versions="newest")
        server.until_factor(2)


def test_replicas_come_and_go_as_the_settings_say(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path, replicas=1) as server, clients(server, 4, (1,)) as asking:
        eventually(lambda: len(server.replicas) == 1, "one replica")
        server.change(replicas=3)
        eventually(lambda: len(server.replicas) == 3, "three replicas")
        server.change(replicas=1)
        eventually(lambda: len(server.replicas) == 1, "one replica")
        counts = [one.answers for one in asking]
        eventually(lambda: all(one.answers > count for one, count in zip(asking, counts)), "answers")
    assert not any(one.failures or one.wrong for one in asking), [one.failures for one in asking]


def test_a_request_in_flight_is_answered_before_the_server_ends(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        port = server.port
        answers: list[float] = []
        slow = threading.Thread(target=lambda: answers.append(server.ask(99, 1)[0]), daemon=True)
        slow.start()
        eventually((folder / "1" / "busy").exists, "a busy model")
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not _accepts(port), "a closed port")
        assert server.process.poll() is None
        (folder / "1" / "go").touch()
        slow.join(120)
        assert answers == [100]
        assert server.process.wait(120) == 0


def test_a_second_signal_ends_it_at_once(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        port = server.port
        slow = threading.Thread(target=_ask_in_vain, args=(server,), daemon=True)
        slow.start()
        eventually((folder / "1" / "busy").exists, "a busy model")
        server.process.send_signal(signal.SIGINT)
        eventually(lambda: not _accepts(port), "a closed port")
        assert server.stop(signal.SIGINT) == 0
        slow.join(120)


def test_silent_connections_do_not_hold_up_the_end(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(5)]
        silent[0].sendall(b"POST /v1/models/sums:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf")
        server.change(grace=2.0)
        server.ask(1, 2)
        assert server.stop() == 0
        for one in silent:
            one.close()


def test_a_supervisor_that_is_killed_takes_its_replicas_along(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path, replicas=2) as server:
        server.ask(1, 2)
        pids = server.replicas
        server.process.kill()
        server.process.wait(60)
        eventually(
            lambda: not any(one.is_running() and one.status() != "zombie" for one in pids), "end of all"
        )


def test_counts_of_replicas_that_are_gone_are_kept(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        for _ in range(5):
            server.ask(1, 2)
        server.replicas[0].kill()
        server.ask(1, 2)
        rows = sum(value for name, value in server.metrics().items() if name.startswith("oarlock_rows_total"))
        assert rows == 6


def test_memory_is_flat_over_thousands_of_requests(folder: Path, tmp_path: Path) -> None:
    with model_server(folder, tmp_path) as server:
        with clients(server, 4, (1,)) as asking:
            eventually(lambda: sum(one.answers for one in asking) > 1000, "warm-up", 300)
            before = server.replicas[0].memory_info().rss
            eventually(lambda: sum(one.answers for one in asking) > 5000, "requests", 300)
            after = server.replicas[0].memory_info().rss
        assert (
            after - before < 8 << 20
        )  # a kilobyte lost with each request would be 4 MB, an array of one more


def _replaced(server: ModelServer, gone: int) -> Callable[[], bool]:
    def look() -> bool:
        pids = [one.pid for one in server.replicas]
        return len(pids) == 2 and gone not in pids

    return look


def _all_have_seen(asking: list[Client], factor: int) -> Callable[[], bool]:
    return lambda: all(factor in one.versions for one in asking)


def _killing(server: ModelServer) -> int | None:
    """The status of a request that kills the process that computes it; None if there was no answer."""
    try:
        return refusal(server, b'{"inputs": {"x": [[666, 1]]}}')[0]
    except OSError:
        return None


def _ask_in_vain(server: ModelServer) -> None:
    with contextlib.suppress(OSError):
        server.ask(99, 1)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except OSError:
        return False
    return True


def test_a_server_that_does_not_follow_keeps_its_version_and_ends_with_its_code(tmp_path: Path) -> None:
    """For `oarlock predict`: all answers are of one version, and a Job replaces a pod that was deleted."""
    publish(tmp_path / "sums", 1)
    with model_server(tmp_path / "sums", tmp_path, follows=False, stopped=143) as server:
        server.until_factor(1)
        publish(tmp_path / "sums", 2)
        server.change(replicas=2)  # it looks at the settings, and would look at the folder
        eventually(lambda: len(server.replicas) == 2, "two replicas", evidence=lambda: server.said)
        server.change(replicas=1)
        eventually(lambda: len(server.replicas) == 1, "one replica", evidence=lambda: server.said)
        assert server.ask(1, 2)[0] == 3
        assert server.stop() == 143
