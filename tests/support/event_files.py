"""TensorBoard's files, and what its server makes of them, without TensorFlow."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

from oarlock.agent.record import tfevents

_SCALARS = "data/plugin/scalars"


def event_file(tag: str) -> bytes:
    """A file as a program writes it, with one scalar."""
    return tfevents.header(1.0) + tfevents.scalars(1.0, 1, {tag: 0.5})


def events_in(path: Path) -> list[Event]:
    """The events in a file, as TensorBoard reads them: it compares the checksums."""
    reader, found = PyRecordReader_New(str(path)), list[Event]()
    while True:
        try:
            reader.GetNext()
        except OutOfRangeError:
            return found
        found.append(Event.FromString(reader.record()))


def points_in(folder: Path) -> list[tuple[str, int, float]]:
    """Tag, step and value of all scalars in a folder; a restart is ("restart", step, 0)."""
    found = []
    for path in sorted(folder.glob("*tfevents*")):
        header, *events = events_in(path)
        assert header.file_version == "brain.Event:2"
        for event in events:
            if event.session_log.status == SessionLog.START:
                found.append(("restart", event.step, 0.0))
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
    return found


def runs_at(url: str) -> dict[str, set[str]]:
    """The tags of each run that a TensorBoard at this address shows."""
    with urllib.request.urlopen(url, timeout=300) as answer:
        assert answer.status == 200
        answer.read()
    return {run: set(tags) for run, tags in _asked(f"{url}{_SCALARS}/tags").items()}


def tags_at(url: str) -> set[str]:
    """The scalars that a TensorBoard at this address shows."""
    return {tag for tags in runs_at(url).values() for tag in tags}


def curve_at(url: str, run: str, tag: str) -> list[tuple[int, float]]:
    """The steps and values of a curve."""
    asked = urllib.parse.urlencode({"run": run, "tag": tag})
    try:
        found = _asked(f"{url}{_SCALARS}/scalars?{asked}")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []  # it has not read that yet
        raise
    return [(step, value) for _, step, value in found]


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=300) as answer:
        return json.loads(answer.read())
