"""Versions of a model appear whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oarlock.models.model_manifest import BadManifest
from oarlock.models.model_versions import new_version, versions, write_version


def _numbers(folder: Path) -> list[int]:
    return [version.number for version in versions(folder)]


def test_versions_are_numbered_from_one(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with new_version(tmp_path / "model") as draft:
            (draft / "file").write_text(text)
            assert _numbers(tmp_path / "model") == ([] if text == "first" else [1])
    assert [(one.number, (one.path / "file").read_text()) for one in versions(tmp_path / "model")] == [
        (1, "first"),
        (2, "second"),
    ]


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def export() -> None:
        with new_version(tmp_path) as draft:
            (draft / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        export()
    assert list(tmp_path.iterdir()) == []


def test_versions_published_at_the_same_time_all_stay(tmp_path: Path) -> None:
    gate = threading.Barrier(4)

    def publish() -> None:
        with new_version(tmp_path) as draft:
            (draft / "file").touch()
            gate.wait()

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert _numbers(tmp_path) == [1, 2, 3, 4]


def test_a_model_without_versions_is_version_1(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    [only] = versions(tmp_path)
    assert (only.number, only.path, only.manifest().format) == (1, tmp_path, "saved_model")


def test_versions_are_in_the_order_of_their_numbers_and_other_names_are_none(tmp_path: Path) -> None:
    for name in ("10", "9", "01", "latest", ".draft-x"):
        (tmp_path / name).mkdir()
    (tmp_path / "11").touch()
    assert _numbers(tmp_path) == [9, 10]


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    assert versions(tmp_path) == versions(tmp_path / "missing") == []
    (tmp_path / "1").mkdir()
    [version] = versions(tmp_path)
    with pytest.raises(BadManifest, match="holds no model"):
        version.manifest()


def test_the_draft_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    program = """if True:
        import os, signal, sys
        from pathlib import Path
        from oarlock.models.model_versions import write_version

        def die(draft):
            (draft / "half").write_text("of a model")
            os.kill(os.getpid(), signal.SIGKILL)

        write_version(Path(sys.argv[1]), die)
    """
    killed = subprocess.run([sys.executable, "-c", program, tmp_path], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    with new_version(tmp_path) as living:
        (living / "file").touch()
        assert not left.exists()
        version = write_version(tmp_path, lambda draft: (draft / "file").touch())
        assert living.exists()
    assert version.path == tmp_path / "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
