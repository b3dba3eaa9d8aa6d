"""What does the size of a run cost the client? 2, 200 and 5,000 workers on simulated nodes.

    .venv/bin/python bench/kubernetes_scale.py [--repeats N] [--json]

No agent runs there: this measures the objects and the client. Objects are counted without the pods; the
figures of `run -d`, `ps --refresh` and `status` are wall-clock seconds and the peak of the client's memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from arena import BIN, MeasurementError
from clusters import as_admin, environment, kubectl, script
from question import Question, Row, Target, main, progress

from oarlock.system.polling import wait_for

_SIZES = (2, 200, 5000)
_NODES = 100
_ENOUGH = 300.0
_KINDS = "jobs,services,configmaps,secrets,networkpolicies,persistentvolumeclaims"
_SIMULATED = "oarlock.dev/simulated"
_SECONDS = Target(2.0, of="ours")
_MEGABYTES = Target(200.0, of="ours")
# A child of its own, so that the peak is the command's and nobody else's.
_MEASURED = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
taken = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps([code.returncode, taken, peak, code.stderr.decode()[-500:]]))
"""


def measure(repeats: int) -> list[Row]:
    env = environment()
    script("simulate-nodes", str(_NODES))
    rows: list[Row] = []
    counted: list[int] = []
    try:
        for workers in _SIZES:
            with tempfile.TemporaryDirectory() as folder:
                rows += _of_size(env, Path(folder), workers, counted)
    finally:
        kubectl(as_admin(env), "delete", "node", "-l", f"{_SIMULATED}=true", "--wait=false")
    if len(set(counted)) != 1:
        raise MeasurementError(f"the number of objects depends on the workers: {counted}")
    return rows


def _of_size(env: dict[str, str], folder: Path, workers: int, counted: list[int]) -> list[Row]:
    progress(f"{workers} workers")
    (folder / "train.py").write_text("print('never')\n")
    env = {**env, "OARLOCK_HOME": str(folder / "home")}
    name = f"bench-{workers}"
    words = ["run", "--on", "kubernetes", "-d", "-n", str(workers), "--name", name]
    words += ["--set", f"kubernetes.node_selector={{{_SIMULATED}: 'true'}}"]
    words += ["--set", f"kubernetes.tolerations=[{{key: {_SIMULATED}, operator: Exists}}]"]
    words += ["--set", "kubernetes.claim=none", str(folder / "train.py")]
    try:
        sent = _measured(env, words)
        counted.append(
            len(kubectl(env, "get", _KINDS, "-l", f"oarlock.dev/run={name}", "-o", "name").split())
        )
        _wait_for_pods(env, name, workers)
        listed = _measured(env, ["ps", "--refresh"])
        shown = _measured(env, ["status", name])
    finally:
        subprocess.run(
            [BIN / "oarlock", "delete", "--force", name], env=env, check=False, capture_output=True
        )
    what = f"{workers} workers"
    note = f"{counted[-1]} objects"
    return [
        Row(f"`run -d`, {what}", "s", [sent[0]], target=_SECONDS, note=note),
        Row(f"`ps --refresh`, {what}", "s", [listed[0]], target=_SECONDS),
        Row(f"`status`, {what}", "s", [shown[0]], target=_SECONDS),
        Row(f"`status`, {what}: memory", "MB", [max(listed[1], shown[1])], target=_MEGABYTES),
    ]


def _measured(env: dict[str, str], words: list[str]) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(BIN / "oarlock"), *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=_ENOUGH,
        check=True,
    )
    code, taken, peak, complaint = json.loads(done.stdout)
    if code:
        raise MeasurementError(f"oarlock {' '.join(words)}: {complaint}")
    return taken, peak


def _wait_for_pods(env: dict[str, str], name: str, workers: int) -> None:
    path = "jsonpath={range .items[*]}{.status.ready}{'\\n'}{end}"

    def are_ready() -> bool:
        ready = kubectl(env, "get", "jobs", "-l", f"oarlock.dev/run={name}", "-o", path)
        return sum(map(int, ready.split())) == workers

    try:
        wait_for(are_ready, f"{workers} pods", _ENOUGH, every=0.5)
    except TimeoutError as late:
        raise MeasurementError(str(late)) from None


QUESTION = Question("kubernetes-scale", "What a large run costs the client", measure, repeats=1)

if __name__ == "__main__":
    main([QUESTION], __doc__)
