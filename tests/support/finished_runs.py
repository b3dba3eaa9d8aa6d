"""What the tests of the verbs share: finished runs to look at, made once, and a terminal to type into."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import SCRIPT
from tests.support.small_programs import write
from tests.support.terminals import OpenTerminal, Terminal

PROGRAMS = {
    # Trains, and leaves a model.
    "good": """
        import os, pathlib
        import oarlock
        me = oarlock.current()
        for step in range(1, 21):
            me.report(step=step, total=20, loss=1 / step, accuracy=step / 20)
        print("progress   0%\\rprogress 100%")
        print("\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07plain")
        me.note("half way")
        if me.is_chief:
            (me.model / "weights").write_text("1 2 3")
        print("done by", os.environ["POD_NAME"])
    """,
    # Fails in every generation.
    "bad": """
        import os, time
        print("before")
        if os.environ["OARLOCK_RANK"] == "1":
            raise ValueError("no such thing\\nas a free lunch")
        time.sleep(60)
    """,
    # Has no time for an exception.
    "abrupt": """
        import os
        for word in ("one", "two", "three", "four"):
            print(word, flush=True)
        os._exit(7)
    """,
    # Fails once, then goes through.
    "again": """
        import os, time
        generation = os.environ["OARLOCK_GENERATION"]
        print("generation", generation)
        if generation == "1" and os.environ["OARLOCK_RANK"] == "1":
            print("just a warning: error rate is high")
            raise RuntimeError("only once")
        if generation == "1":
            time.sleep(60)
        print("fine now")
    """,
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OARLOCK_HOME with a run of each program above, called `good-run` and so on. To be read only."""
    folder = tmp_path_factory.mktemp("finished")
    home = folder / "home"
    started = [_start(folder, home, name, text) for name, text in PROGRAMS.items()]
    for name, process in zip(PROGRAMS, started):
        output, _ = process.communicate(timeout=300)
        expected = {"good": 0, "bad": 1, "abrupt": 7, "again": 0}[name]
        assert process.returncode == expected, f"{name}: {output}"
    return home


@pytest.fixture
def records(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The finished runs as this test's OARLOCK_HOME. Take it after `oarlock`."""
    monkeypatch.setenv("OARLOCK_HOME", str(finished))
    return finished


@pytest.fixture
def terminal(home: Path, tmp_path: Path) -> Iterator[OpenTerminal]:
    """`terminal("run", "train.py")`: the console script with a real terminal around it."""
    opened: list[Terminal] = []

    def here(*words: str, columns: int = 100, term: str = "xterm-256color") -> Terminal:
        opened.append(Terminal([str(SCRIPT), *words], tmp_path, columns=columns, term=term))
        return opened[-1]

    yield here
    for one in opened:
        one.close()


def _start(folder: Path, home: Path, name: str, text: str) -> subprocess.Popen[str]:
    write(folder / f"{name}.py", text)
    workers = "1" if name == "abrupt" else "2"
    return subprocess.Popen(
        [SCRIPT, "run", "-n", workers, "--name", f"{name}-run", f"{name}.py"],
        cwd=folder,
        env={**os.environ, "OARLOCK_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
