"""How long from typing the command to the first training step done, on Kubernetes? TensorFlow, 2 pods on 2
nodes, against two Indexed Jobs written by hand (bench/kubernetes/).

    KUBECONFIG=... .venv/bin/python bench/launch_kubernetes.py [--repeats N] [--json]

`headless` is what people write: pods that find each other by name, which a cluster's DNS may deny for 30 s.
`addresses` is the best that can be written: cluster addresses that are known before the pods start. Both
are created with kubectl; nobody builds an image. Uses the cluster of ../shared/kube where that is, else
the one that KUBECONFIG names.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from arena import BIN, PROGRAMS, MeasurementError
from clusters import environment, kubectl
from question import Question, Row, Target, main, progress

from oarlock.system.polling import wait_for

# By the names that they have in a pod.
_FILES = {"program.py": PROGRAMS / "tensorflow_mirrored.py", "marks.py": PROGRAMS / "marks.py"}
_MANIFESTS = Path(__file__).parent / "kubernetes"
_ENOUGH = 180.0
_POLL = 0.05


def measure(repeats: int) -> list[Row]:
    env = environment()
    sides: dict[str, Callable[[dict[str, str]], float]] = {
        "ours": _ours,
        "addresses": _addresses,
        "headless": _headless,
    }
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats):
        for name, launch in sides.items():
            progress(f"launch {turn + 1} of {repeats}: {name}")
            taken[name].append(launch(env))
    what = "2 pods on 2 nodes"
    return [
        Row(what, "s", taken["ours"], taken["headless"], "Indexed Job, headless names", Target(0.15)),
        Row(what, "s", taken["ours"], taken["addresses"], "Indexed Job, addresses given", Target(1.1)),
    ]


def _ours(env: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        program.mkdir()
        for name, file in _FILES.items():
            (program / name).write_text(file.read_text())
        env = {**env, "OARLOCK_HOME": f"{folder}/home"}
        words = [BIN / "oarlock", "run", "--on", "kubernetes", "-n", "2", "--name", "bench-ours"]
        words += ["--set", "roles.worker.cpu=500m", "--set", "kubernetes.claim=none", program / "program.py"]
        try:
            began = time.time()
            said = subprocess.run(
                list(map(str, words)), env=env, check=True, capture_output=True, text=True, timeout=_ENOUGH
            ).stdout
            return _first_step(said) - began
        except subprocess.CalledProcessError as problem:
            raise MeasurementError(problem.stdout + problem.stderr) from None
        finally:
            subprocess.run(
                [BIN / "oarlock", "delete", "--force", "bench-ours"],
                env=env,
                check=False,
                capture_output=True,
            )


def _headless(env: dict[str, str]) -> float:
    return _by_hand(env, "headless", lambda: (_MANIFESTS / "headless.yaml").read_text())


def _addresses(env: dict[str, str]) -> float:
    def manifest() -> str:
        """The Services first, since their addresses go into the ConfigMap."""
        text = (_MANIFESTS / "addresses.yaml").read_text()
        kubectl(env, "apply", "-f", "-", text="---".join(text.split("---")[:2]))
        addresses = kubectl(
            env, "get", "services", "-l", "bench=addresses", "-o", "jsonpath={.items[*].spec.clusterIP}"
        )
        return "---".join(text.split("---")[2:]).replace("$ADDRESSES", addresses)

    return _by_hand(env, "addresses", manifest)


def _by_hand(env: dict[str, str], name: str, manifest: Callable[[], str]) -> float:
    try:
        began = time.time()
        files = [f"--from-file={name}={file}" for name, file in _FILES.items()]
        kubectl(env, "create", "configmap", "bench-program", *files)
        kubectl(env, "apply", "-f", "-", text=manifest())
        try:
            wait_for(lambda: "FIRST STEP" in _log(env, name), f"first step of {name}", _ENOUGH, _POLL * 10)
        except TimeoutError as late:
            raise MeasurementError(f"{late}:\n{_log(env, name)[-2000:]}") from None
        return _first_step(_log(env, name)) - began
    finally:
        kubectl(env, "delete", "job,service,configmap", "-l", f"bench={name}", "--wait=true")
        kubectl(env, "delete", "configmap", "bench-program", "--ignore-not-found")
        kubectl(env, "wait", "pod", "-l", f"bench={name}", "--for=delete", "--timeout=60s")


def _log(env: dict[str, str], name: str) -> str:
    selector = f"bench={name},batch.kubernetes.io/job-completion-index=0"
    words = ["kubectl", "logs", "-l", selector, "--tail=-1"]
    return subprocess.run(words, env=env, check=False, capture_output=True, text=True).stdout


def _first_step(said: str) -> float:
    line = next(line for line in said.splitlines() if "FIRST STEP" in line)
    return float(line.split()[-1])


QUESTION = Question("launch-kubernetes", "Launch to first step, Kubernetes", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
