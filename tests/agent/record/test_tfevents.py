"""Event files that TensorBoard reads."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import SessionLog

from oarlock.agent.record import tfevents
from tests.support.event_files import events_in


@pytest.mark.parametrize("step", [0, 1, 127, 128, 300_000, 2**40, 2**63 - 1])
def test_its_own_reader_finds_every_value(tmp_path: Path, step: int) -> None:
    path = tmp_path / "events.out.tfevents.1"
    values = {"loss": 0.25, "évaluation/précision " + "x" * 200: -3.0, "": 0.0}
    path.write_bytes(tfevents.header(1.5) + tfevents.scalars(2.5, step, values))
    header, event = events_in(path)
    assert (header.wall_time, header.file_version) == (1.5, "brain.Event:2")
    assert (event.wall_time, event.step) == (2.5, step)
    assert {value.tag: value.simple_value for value in event.summary.value} == values


def test_values_without_a_place_in_32_bits_are_infinite(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    values = {"nan": math.nan, "inf": math.inf, "most": 1e300, "least": -1e39, "large": 3.4e38}
    path.write_bytes(tfevents.scalars(1.0, 1, values))
    [event] = events_in(path)
    found = {value.tag: value.simple_value for value in event.summary.value}
    assert math.isnan(found.pop("nan"))
    assert found.pop("large") == pytest.approx(3.4e38)
    assert found == {"inf": math.inf, "most": math.inf, "least": -math.inf}


def test_a_restart_is_a_session_that_starts(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(tfevents.restart(3.0, 100))
    [event] = events_in(path)
    assert (event.step, event.session_log.status) == (100, SessionLog.START)
