"""The socket that torch's store is given, with a store that tells what it got."""

from __future__ import annotations

import os
import socket
import types
from typing import Any

import pytest

from oarlock.training.frameworks import loopback


@pytest.fixture
def distributed() -> Any:
    """`torch.distributed` as it was: up to 2.5 the default server took no socket."""

    class TCPStore:
        def __init__(self, *args: Any, **options: Any) -> None:
            if options.get("master_listen_fd") is not None and options.get("use_libuv", True):
                raise NotImplementedError("does not support initialization with an listen fd")
            self.given = (args, options)

    module = types.ModuleType("torch.distributed")
    module.TCPStore = TCPStore  # type: ignore[attr-defined]
    loopback._bind_stores(module)
    return module


def test_an_older_torch_uses_its_older_server(distributed: Any) -> None:
    _, given = distributed.TCPStore("127.0.0.1", 0, 2, True).given
    with socket.socket(fileno=given["master_listen_fd"]) as listener:
        assert listener.getsockname() == ("127.0.0.1", given["port"])
    assert (given["use_libuv"], given["world_size"]) == (False, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"host_name": "127.0.0.1", "port": 0, "is_master": False},
        {"host_name": "0.0.0.0", "port": 0, "is_master": True},
        {"host_name": "no such host", "port": 0, "is_master": True},
        {"host_name": "127.0.0.1", "port": 0, "is_master": True, "master_listen_fd": 7, "use_libuv": False},
        {},
    ],
    ids=["a client", "all interfaces asked for", "a bad name", "a socket of its own", "nonsense"],
)
def test_everything_else_is_torchs_own_business(distributed: Any, arguments: dict[str, Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert distributed.TCPStore(**arguments).given == ((), arguments)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_port_that_is_taken_is_left_to_torch(distributed: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert distributed.TCPStore("localhost", port, 1, True).given == (("localhost", port, 1, True), {})


@pytest.mark.parametrize(
    ("leader", "is_local"), [("127.0.0.1:7", True), ("[::1]:7", True), ("10.0.0.1:7", False), ("", False)]
)
def test_only_a_run_on_this_machine_is_local(
    leader: str, is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OARLOCK_LEADER", leader)
    assert loopback.is_local() is is_local
