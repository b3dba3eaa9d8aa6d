"""All checks and tests, as `make test` runs them: every part even when one fails, then one summary.

The parts run one after the other: on two processors, cluster tests beside the others ran into deadlines, and
both together took as long. Two parts begin with the first and run beside those that leave a processor idle:
tests that break the cluster, which mostly wait for nodes that are gone, and the check of types. More than
half of all tests start no run and take little over a minute together: they run meanwhile, in a part of their
own, so that the processes of the others need not collect them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
BIN = Path(PYTHON).parent
PYTEST = [PYTHON, "-m", "pytest"]
# Threads of torch that wait for work would spin, beside ten processes that have some: a tenth of the time.
ENV = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
# A file's tests share what they have started, so they stay together; what takes long is handed out first.
BY_FILE = [*PYTEST, "--dist", "loadfile", "--no-loadscope-reorder"]
# For two processors: most tests wait more than they compute, for other processes or for pods.
PROCESSES, ON_A_CLUSTER = "5", "4"
WITHOUT_RUNS = [
    f"tests/{name}"
    for name in (
        *("agent/host", "agent/lead", "checkpoints", "engines", "job", "models", "program", "records", "run"),
        *("serving/batching", "serving/dialects", "serving/generation", "serving/http", "system"),
        *("training/steps", "test_architecture.py", "test_conventions.py", "test_quantities.py"),
    )
]
LONGEST = ["training", "examples", "frameworks", "wheel", "docs", "agent", "cli", "serving"]
PACK = """
import sys

sys.dont_write_bytecode = False
from oarlock.program import agent_zip

agent_zip.pack(), agent_zip.pack_server()
"""
# fmt: off
LONGEST_ON_A_CLUSTER = [
    "docs", "serve", "scale", "inspect", "recovery", "ownership", "tensorboard", "evaluation", "pull",
    "programs", "snapshots", "diagnose", "chaos", "users", "dying_clients", "administrators",
    "checkpoints_listed", "stop", "safety", "settings", "pip", "checkpoints", "plan", "ingest", "exec",
    "folders", "examples", "login", "program_files", "render",
]
# fmt: on


def _ordered(folder: str, longest: Sequence[str]) -> list[str]:
    """Files and folders with tests: the longest in their order, then the others by name."""
    no_tests = ("kubernetes", "programs", "support", "__pycache__")
    found = [path for path in (ROOT / folder).iterdir() if path.is_dir() or path.name.startswith("test_")]
    rank = {name: number for number, name in enumerate(longest)}
    key = {path: path.stem.removeprefix("test_") for path in found if path.name not in no_tests}
    return [
        f"{folder}/{path.name}"
        for path in sorted(key, key=lambda path: (rank.get(key[path], len(rank)), path.name))
    ]


@dataclass(frozen=True)
class Part:
    name: str
    words: Sequence[str | Path]
    is_beside: bool = False  # begins with the first part
    is_heavy: bool = False  # needs all processors: what runs beside others is waited for before it begins


@dataclass(frozen=True)
class Outcome:
    part: str
    passed: int
    failed: int
    skipped: int
    minutes: float

    def __str__(self) -> str:
        return f"{self.part:<18}{self.passed:>7}{self.failed:>7}{self.skipped:>8}{self.minutes:>8.1f}"


PARTS = [
    Part("kubernetes alone", [*PYTEST, "-m", "alone", "tests/kubernetes"], is_beside=True),
    Part("types", [PYTHON, "tests/strict_types.py"], is_beside=True),
    Part("format", [BIN / "ruff", "format", "--check", "."]),
    Part("lint", [BIN / "ruff", "check", "."]),
    Part("lowest versions", [PYTHON, "tests/lowest.py"]),
    Part("without runs", [*BY_FILE, "-n", "3", *WITHOUT_RUNS]),
    Part(
        "tests",
        [
            *BY_FILE,
            "-n",
            PROCESSES,
            *(f"--ignore={path}" for path in WITHOUT_RUNS),
            *(path for path in _ordered("tests", LONGEST) if path not in WITHOUT_RUNS),
        ],
        is_heavy=True,
    ),
    Part(
        "kubernetes",
        [
            *BY_FILE,
            "-n",
            ON_A_CLUSTER,
            "-m",
            "not alone",
            *_ordered("tests/kubernetes", LONGEST_ON_A_CLUSTER),
        ],
        is_heavy=True,
    ),
]


def main(parts: Sequence[Part] = PARTS) -> int:
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor() as pool:
        beside = [pool.submit(_outcome, part) for part in parts if part.is_beside]
        for part in parts:
            if part.is_heavy:
                outcomes += [one.result() for one in beside]
                beside = []
            if not part.is_beside:
                outcomes.append(_outcome(part))
        outcomes += [one.result() for one in beside]
    print(f"\n{'part':<18}{'passed':>7}{'failed':>7}{'skipped':>8}{'minutes':>8}")
    print(*outcomes, sep="\n")
    passed, failed, skipped = (
        sum(getattr(outcome, count) for outcome in outcomes) for count in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


def _outcome(part: Part) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "said").open("w+b") as said:
        report = Path(folder) / "report.xml"
        is_pytest = "pytest" in part.words or "tests/lowest.py" in part.words
        words = [*part.words, *([f"--junitxml={report}"] if is_pytest else [])]
        # What a part beside others says is shown in one piece, when it is over.
        into = said if part.is_beside else None
        began = time.monotonic()
        code = subprocess.run(words, cwd=ROOT, check=False, stdout=into, stderr=into, env=ENV).returncode
        minutes = (time.monotonic() - began) / 60
        passed, failed, skipped = _counts(report) if report.exists() else (code == 0, 0, 0)
        said.seek(0)
        print(said.read().decode(errors="replace"), end="", flush=True)
    # A part that fails has a failure to show for it, even one that pytest could not count.
    return Outcome(part.name, passed, max(failed, code != 0), skipped, minutes)


def _counts(report: Path) -> tuple[int, int, int]:
    [suite] = ElementTree.parse(report).getroot().iter("testsuite")
    total, failures, errors, skipped = (
        int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")
    )
    return total - failures - errors - skipped, failures + errors, skipped


if __name__ == "__main__":
    # Thousands of processes import Oarlock, hundreds pack it for pods. If PYTHONDONTWRITEBYTECODE is set,
    # each would do so again.
    subprocess.run([PYTHON, "-m", "compileall", "-q", "src", "tests"], cwd=ROOT, check=False)
    subprocess.run([PYTHON, "-c", PACK], cwd=ROOT, check=False)
    sys.exit(main())
