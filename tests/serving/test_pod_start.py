"""The first process of a pod that serves: what it prepares, and what it becomes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from oarlock.models.model_versions import versions
from oarlock.program import model_bundle
from oarlock.serving import pod_start
from oarlock.system.pods import places

EXECUTED = "the server"


class _Became(Exception):
    pass


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod's folders, with settings; this process is not replaced, and its environment is kept."""
    code, work = tmp_path / "code", tmp_path / "work"
    code.mkdir()
    work.mkdir()
    (code / "settings.json").write_text(EXECUTED)
    (code / "pod.json").write_text("{}")
    monkeypatch.setattr(pod_start, "CODE", code)
    monkeypatch.setattr(pod_start, "WORK", work)
    monkeypatch.setattr(places, "MODEL", str(work / "model"))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.chdir(tmp_path)

    def become(program: str, words: list[str]) -> None:
        raise _Became(*words)

    monkeypatch.setattr(os, "execv", become)
    return tmp_path


def test_it_becomes_the_server_with_settings_that_may_have_something_beside_them(pod: Path) -> None:
    with pytest.raises(_Became) as became:
        pod_start.main()
    settings = pod / "work" / "settings.json"
    assert list(became.value.args) == [sys.executable, "-m", "oarlock.serving", str(settings)]
    assert settings.read_text() == EXECUTED
    assert os.environ["HOME"] == str(pod / "work" / "home")
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == sys.path[0]


def test_a_model_that_was_handed_over_is_there_even_after_a_restart(pod: Path) -> None:
    origin = pod / "origin"
    (origin / "3").mkdir(parents=True)
    (origin / "3" / "oarlock.json").write_text("{}")
    packed = model_bundle.pack(origin, versions(origin))
    for number, start in enumerate(range(0, len(packed), 50)):
        (pod / "code" / f"model.tar.gz.{number:02}").write_bytes(packed[start : start + 50])
    for _ in range(2):
        with pytest.raises(_Became):
            pod_start.main()
    assert (pod / "work" / "model" / "3" / "oarlock.json").read_text() == "{}"


def test_only_what_the_image_lacks_is_installed_and_what_the_user_asks_for(pod: Path) -> None:
    known = {"numpy": "numpy", "no-such-thing": "no_such_thing_at_all"}
    asked = {"pip": ["numpy", "no-such-thing", "pillow>=10"], "modules": known}
    assert pod_start._lacking(asked) == ["no-such-thing", "pillow>=10"]


def test_what_is_damaged_is_one_sentence(pod: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pod / "code" / "pod.json").unlink()
    assert pod_start.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("oarlock: ")
    assert said.count("\n") == 1
    (pod / "code" / "pod.json").write_text(json.dumps({}))
    (pod / "code" / "model.tar.gz.00").write_bytes(b"no archive")
    assert pod_start.main() == 1
    assert "Traceback" not in capsys.readouterr().err
