"""Somebody who does what a page says, in a folder with stand-ins for the programs, models and tools."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oarlock.records import runs
from tests.support.page_programs import (
    ARGUMENTS,
    LONG,
    MODELS,
    QUICK,
    write_examples,
    write_inputs,
    write_model,
    write_tools,
)
from tests.support.waiting import eventually

# What takes too long as it stands, and what is run instead. On a cluster: all but the sending.
SHORTER = {
    "--faults 20 --every 30s": "--faults 2 --every 0.2s --pause 0.2s",
    "--faults 5 --every 10s": "--faults 2 --every 0.2s --pause 0.2s",
    "--faults 2 --every 3s": "--faults 2 --every 0.2s --pause 0.2s",
    "chaos --faults 5 --yes": "chaos --faults 2 --every 0.2s --pause 0.2s --yes",
    "@1800": "@20",  # the stand-in's last step
    "oarlock run --on kubernetes": "oarlock run --dry-run --on kubernetes",
    "oarlock run -d --on kubernetes": "oarlock run --dry-run -d --on kubernetes",
}
_LASTS = re.compile(r"oarlock (serve(?! -d)|run --serve)\b")  # until Ctrl-C
_ASKS = re.compile(r"^curl |\boarlock predict\b")  # what is served meanwhile
_DEFAULT = "http://127.0.0.1:8000"  # if nobody else has that port


class Reader:
    def __init__(self, folder: Path) -> None:
        self.top = self.folder = folder
        self.address = _DEFAULT
        self.models = folder / "models"
        (folder / "train.py").write_text(ARGUMENTS + QUICK)
        (folder / "prepare.py").touch()
        (folder / "job.yaml").write_text(
            "name: mnist\nprogram: train.py\nroles: {worker: 2}\ningest: prepare.py\n"
        )
        for kind in MODELS:
            write_model(self.models / kind / "1", kind)
        write_examples(folder / "examples", self.models)
        write_inputs(folder)
        self.tools = write_tools(folder / "tools")
        path = f"{self.tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._env = {"PATH": path, "KUBECONFIG": str(folder / "no-cluster")}
        self._lasting: subprocess.Popen[bytes] | None = None
        self._output = folder / "output"

    def do(self, line: str) -> str:
        """Run it to its end, or until it answers, and return what it printed."""
        if not _ASKS.search(line):
            self.interrupt()
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        line = re.sub(r"(?<!--name )\b([a-z-]+)-abcd\b(?!\.)", _known, line).replace(_DEFAULT, self.address)
        return self._until_it_answers(line) if _LASTS.match(line) else self._to_its_end(line)

    def start(self, name: str, *, program: str = LONG, workers: int = 1) -> None:
        (self.folder / f"{name}.py").write_text(program)
        self.do(f"oarlock run -d -n {workers} --name {name} {name}.py")

    def interrupt(self) -> None:
        """Ctrl-C in what still runs. A server's record goes: the newest run of a page is one that trained."""
        if self._lasting is None:
            return
        self._lasting.send_signal(signal.SIGINT)
        code = self._lasting.wait(300)
        said = self._output.read_text()
        assert code == 130, said
        self._lasting, self.address = None, _DEFAULT
        for name in re.findall(r"^oarlock \| run (\S+-serve-\S+)$", said, re.MULTILINE):
            runs.find(name).remove()

    def close(self) -> None:
        if self._lasting is not None:
            self._lasting.kill()
            self._lasting.wait(60)

    def _to_its_end(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env={**os.environ, **self._env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _until_it_answers(self, line: str) -> str:
        with self._output.open("wb") as output:
            self._lasting = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder,
                env={**os.environ, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        process = self._lasting

        def address() -> str | None:
            said = self._output.read_text()
            assert process.poll() is None, f"{line}: {process.returncode}\n{said}"
            found = re.search(r"http://127\.0\.0\.1:\d+", said)
            return found and found[0]

        self.address = eventually(address, f"address from {line}", evidence=self._output.read_text)
        return self._output.read_text()


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    """No process is left behind but runs, which the fixture `home` ends."""
    reader = Reader(folder)
    try:
        yield reader
        reader.interrupt()
    finally:
        reader.close()


def _known(written: re.Match[str]) -> str:
    """The page's `JOB-abcd` is, unless there is such a run, the newest one of that job."""
    names = [run.name for run in runs.all_runs()]
    of_job = [name for name in names if name.rpartition("-")[0] == written[1]]
    return written[0] if written[0] in names or not of_job else of_job[0]
