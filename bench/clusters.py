"""The cluster that is measured: the one of ../shared/kube where that is, else the one KUBECONFIG names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from arena import BIN, MeasurementError

SCRIPT = Path(__file__).parents[2] / "shared" / "kube" / "cluster"
_FOLDER = Path("/tmp/oarlock-kube")


def environment() -> dict[str, str]:
    """Variables for `oarlock` and `kubectl` as a user with the role `edit`."""
    if SCRIPT.exists():
        words = [str(SCRIPT), "up", "--venv", BIN.parent.name]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=BIN.parents[1])
        path = f"{_FOLDER / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(_FOLDER / "edit.kubeconfig"), "PATH": path}
    if "KUBECONFIG" not in os.environ:
        raise MeasurementError("no cluster: set KUBECONFIG")
    return dict(os.environ)


def script(*words: str) -> None:
    if not SCRIPT.exists():
        raise MeasurementError("only the cluster of ../shared/kube can do that")
    subprocess.run([SCRIPT, *words], check=True, stdout=subprocess.DEVNULL, timeout=300)


def as_admin(env: dict[str, str]) -> dict[str, str]:
    return {**env, "KUBECONFIG": str(_FOLDER / "admin.kubeconfig")}


def kubectl(env: dict[str, str], *words: str, text: str | None = None) -> str:
    try:
        return subprocess.run(
            ["kubectl", *words], env=env, check=True, capture_output=True, text=True, input=text
        ).stdout.strip()
    except subprocess.CalledProcessError as problem:
        raise MeasurementError(f"kubectl {' '.join(words)}: {problem.stderr}") from None
