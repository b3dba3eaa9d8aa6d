"""What must hold when something waits for a module to be imported, tried on small modules made here."""

from __future__ import annotations

import copy
import importlib
import importlib.resources
import importlib.util
import inspect
import pickle
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from oarlock.training.frameworks import import_hooks
from oarlock.training.frameworks.import_hooks import when_imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; what it taught the interpreter is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    meta_path = list(sys.meta_path)
    actions = {name: list(registered) for name, registered in import_hooks._actions.items()}
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("demo"):
            del sys.modules[name]
    import_hooks._actions.clear()
    import_hooks._actions.update(actions)
    sys.meta_path[:] = meta_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def test_nothing_is_imported_by_waiting_for_it(folder: Path) -> None:
    write(folder / "demo.py", "")
    when_imported("demo", lambda module: None)
    assert "demo" not in sys.modules


def test_the_action_runs_after_the_module_and_before_its_importer_goes_on(folder: Path) -> None:
    write(folder / "demo.py", "answer = 41")
    write(folder / "demo_user.py", "import demo\nseen = demo.answer")
    when_imported("demo", lambda module: setattr(module, "answer", module.answer + 1))
    assert importlib.import_module("demo_user").seen == 42


def test_a_module_imported_before_is_acted_on_at_once(folder: Path) -> None:
    write(folder / "demo.py", "")
    demo = importlib.import_module("demo")
    seen: list[ModuleType] = []
    when_imported("demo", seen.append)
    assert seen == [demo]


def test_submodules_can_be_waited_for(folder: Path) -> None:
    write(folder / "demo" / "__init__.py", "from demo import inner")
    write(folder / "demo" / "inner.py", "")
    seen: list[ModuleType] = []
    when_imported("demo.inner", seen.append)
    demo = importlib.import_module("demo")
    assert seen == [demo.inner]


def test_registering_twice_runs_once_whether_before_or_after_the_import(folder: Path) -> None:
    write(folder / "demo.py", "")
    seen: list[str] = []

    def action(module: ModuleType) -> None:
        seen.append(module.__name__)

    when_imported("demo", action)
    when_imported("demo", action)
    importlib.import_module("demo")
    when_imported("demo", action)
    assert seen == ["demo"]


def test_an_action_registered_while_the_module_is_being_imported_waits_for_its_end(folder: Path) -> None:
    write(
        folder / "demo.py",
        """
        from oarlock.training.frameworks.import_hooks import when_imported
        seen = []
        when_imported("demo", lambda module: seen.append(module.finished))
        finished = True
        """,
    )
    assert importlib.import_module("demo").seen == [True]
    spec = sys.modules["demo"].__spec__
    assert type(spec) is importlib.machinery.ModuleSpec
    assert not vars(spec)["_initializing"]
    assert "_waiting" not in vars(spec)


def test_the_same_holds_when_the_module_was_waited_for_already(folder: Path) -> None:
    write(
        folder / "demo.py",
        """
        from oarlock.training.frameworks.import_hooks import when_imported
        seen = []
        when_imported("demo", lambda module: seen.append(module.finished))
        finished = True
        """,
    )
    when_imported("demo", lambda module: module.seen.append("first"))
    assert importlib.import_module("demo").seen == ["first", True]


def test_a_failed_import_runs_nothing_and_the_next_one_does(folder: Path) -> None:
    write(folder / "demo.py", "raise ValueError('no')")
    seen: list[ModuleType] = []
    when_imported("demo", seen.append)
    with pytest.raises(ValueError, match="no"):
        importlib.import_module("demo")
    assert seen == []
    write(folder / "demo.py", "answer = 'yes, and a longer file than before'")
    demo = importlib.import_module("demo")
    assert seen == [demo]


def test_actions_may_import_and_register_more(folder: Path) -> None:
    for name in ("demo_a", "demo_b", "demo_c"):
        write(folder / f"{name}.py", "")
    seen: list[str] = []

    def first(module: ModuleType) -> None:
        seen.append(module.__name__)
        when_imported("demo_b", second)
        importlib.import_module("demo_b")

    def second(module: ModuleType) -> None:
        seen.append(module.__name__)
        when_imported("demo_a", lambda again: seen.append("late"))

    when_imported("demo_a", first)
    importlib.import_module("demo_a")
    assert seen == ["demo_a", "demo_b", "late"]


def test_a_failing_action_warns_and_the_import_goes_on(folder: Path) -> None:
    write(folder / "demo.py", "answer = 42")

    def breaks(module: ModuleType) -> None:
        raise KeyError("gone")

    when_imported("demo", breaks)
    with pytest.warns(RuntimeWarning, match=r"^oarlock could not prepare demo \(breaks\): KeyError: 'gone'$"):
        demo = importlib.import_module("demo")
    assert demo.answer == 42


def test_a_missing_module_is_missing_as_ever(folder: Path) -> None:
    when_imported("demo_missing", lambda module: None)
    assert importlib.util.find_spec("demo_missing") is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'demo_missing'"):
        importlib.import_module("demo_missing")


def test_what_others_ask_of_spec_and_loader_is_answered_by_the_real_ones(folder: Path) -> None:
    write(folder / "demo" / "__init__.py", "class Thing:\n    size = 3\n")
    (folder / "demo" / "words.txt").write_text("hello")
    when_imported("demo", lambda module: None)
    asked = importlib.util.find_spec("demo")
    assert asked is not None
    assert asked.loader is not None
    assert "size = 3" in asked.loader.get_source("demo")  # type: ignore[attr-defined]
    assert copy.copy(asked.loader).get_filename("demo") == asked.origin  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(asked.loader)).get_filename("demo") == asked.origin

    demo = importlib.import_module("demo")
    assert demo.__spec__ is not None
    assert type(demo.__spec__.loader) is SourceFileLoader
    assert demo.__loader__ is demo.__spec__.loader
    assert importlib.util.find_spec("demo") is demo.__spec__
    assert "size = 3" in inspect.getsource(demo.Thing)
    assert (importlib.resources.files("demo") / "words.txt").read_text() == "hello"
    assert isinstance(pickle.loads(pickle.dumps(demo.Thing())), demo.Thing)


def test_a_module_made_from_the_spec_by_hand_is_acted_on_too(folder: Path) -> None:
    write(folder / "demo.py", "answer = 41")
    when_imported("demo", lambda module: setattr(module, "answer", 42))
    spec = importlib.util.find_spec("demo")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    assert demo.answer == 42
    assert type(demo.__loader__) is SourceFileLoader


def test_a_reload_runs_the_action_again(folder: Path) -> None:
    write(folder / "demo.py", "answer = 41")
    when_imported("demo", lambda module: setattr(module, "answer", module.answer + 1))
    demo = importlib.import_module("demo")
    assert importlib.reload(demo).answer == 42
    assert demo.__spec__ is not None
    assert type(demo.__spec__.loader) is SourceFileLoader


def test_modules_in_a_zip_file_and_namespace_packages_still_import(folder: Path) -> None:
    archive = folder / "demo.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("demo_zipped.py", "answer = 41")
    sys.path.insert(0, str(archive))
    write(folder / "demo_space" / "part.py", "")
    seen: list[str] = []
    for name in ("demo_zipped", "demo_space", "demo_space.part"):
        when_imported(name, lambda module: seen.append(module.__name__))
        importlib.import_module(name)
    assert seen == ["demo_zipped", "demo_space.part"]


def test_two_threads_importing_at_once_run_the_action_once(folder: Path) -> None:
    write(folder / "demo.py", "import threading\nbarrier = threading.Event()\nbarrier.wait(0.05)\n")
    seen: list[ModuleType] = []
    when_imported("demo", seen.append)
    threads = [threading.Thread(target=importlib.import_module, args=("demo",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert seen == [sys.modules["demo"]]


def test_imports_that_nobody_waits_for_cost_next_to_nothing() -> None:
    """One look-up in a dict per import, and no framework or heavy module for having the hook."""
    program = """
        import sys
        before = set(sys.modules)
        from oarlock.training.frameworks.import_hooks import when_imported, _finder
        when_imported("keras", print)
        heavy = {"tensorflow", "keras", "numpy", "inspect", "asyncio"} & (set(sys.modules) - before)
        assert not heavy, heavy
        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append(event))
        _finder.find_spec("some.module", None, None)
        sys.setprofile(None)
        assert len(calls) < 10, calls
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=300)
