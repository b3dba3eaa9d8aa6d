"""All engines, and what is known about each without importing it.

`--help`, `ps` and the `status` of a run that has ended must answer in 100 ms, and a Kubernetes client alone
takes longer than that to import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from oarlock.errors import JobError, OarlockError
from oarlock.records.run_folder import RunFolder


@dataclass(frozen=True)
class Traits:
    """Facts about an engine that verbs and screens act on or print."""

    trains: bool = True  # `oarlock run` can start a run with it
    plans: bool = False  # `oarlock plan` can say what a run would create
    interrupt_stops: bool = False  # Ctrl-C in `oarlock run` stops the run; otherwise it only detaches
    sends_program: bool = True  # the program's folder is copied to other machines
    files_are_here: bool = False  # checkpoints, model and logs are on this machine
    resumable: frozenset[str] = frozenset({"failed", "stopped"})  # states from which `resume` can continue
    options: frozenset[str] = frozenset()  # options of `oarlock run` that only some engines take
    pod_faults: tuple[str, ...] = ()  # what `oarlock chaos` can do to pods
    stop_seconds: float = 60.0  # how long a run may take to end, beyond the grace of its tasks
    recovery_seconds: float = 300.0  # how long a run may take to recover from a fault


class Listed(NamedTuple):
    """One engine."""

    where: str  # its class, as module:name
    traits: Traits


# By the name in a run's record and after `--on`.
ENGINES = {
    "local": Listed(
        "oarlock.engines.local.local_engine:LocalEngine",
        Traits(
            interrupt_stops=True,
            sends_program=False,
            files_are_here=True,
            resumable=frozenset({"failed", "stopped", "lost"}),
            options=frozenset({"machines", "stdin"}),
            stop_seconds=30.0,
            recovery_seconds=120.0,
        ),
    ),
    "kubernetes": Listed(
        "oarlock.engines.kubernetes.kubernetes_engine:KubernetesEngine",
        Traits(
            plans=True,
            options=frozenset({"namespace", "context", "ingress", "gateway"}),
            pod_faults=("delete", "evict"),
        ),
    ),
    # A model that is served on a cluster. `--on kubernetes` starts it; only its record names this engine.
    "kubernetes-serving": Listed(
        "oarlock.engines.kubernetes.deployments.serving_engine:ServingEngine",
        Traits(trains=False, resumable=frozenset({"stopped"}), pod_faults=("delete", "evict")),
    ),
}
TRAINING = tuple(name for name, listed in ENGINES.items() if listed.traits.trains)  # after `--on`
PLANNING = tuple(name for name, listed in ENGINES.items() if listed.traits.plans)  # after `plan --on`


def traits_of(run: RunFolder) -> Traits:
    """Return the traits of the engine that runs it. Raises OarlockError if there is no such engine."""
    return listed_for(run).traits


def listed_for(run: RunFolder) -> Listed:
    """Return the engine that runs it. Raises OarlockError if this Oarlock does not have that engine."""
    try:
        return listed(run.engine)
    except JobError as problem:
        raise OarlockError(f"{run.name}: {problem}") from None


def listed(name: str) -> Listed:
    """Return the engine of that name. Raises JobError if there is none."""
    if name not in ENGINES:
        raise JobError(f"there is no engine called {name!r}; expected {' or '.join(map(repr, TRAINING))}")
    return ENGINES[name]
