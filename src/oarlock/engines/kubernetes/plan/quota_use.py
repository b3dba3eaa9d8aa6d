"""What a run would use of a namespace's quotas. Pure: manifests and ResourceQuotas in, sums out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from oarlock.engines.kubernetes.api import quantity
from oarlock.engines.kubernetes.api.names import Object

Usage = dict[str, Decimal]

# The names by which quotas count each kind: the plural with its group, for some an older name too.
_COUNTED = {
    "Job": ("count/jobs.batch",),
    "Pod": ("pods", "count/pods"),
    "Service": ("services", "count/services"),
    "ConfigMap": ("configmaps", "count/configmaps"),
    "Secret": ("secrets", "count/secrets"),
    "NetworkPolicy": ("count/networkpolicies.networking.k8s.io",),
    "PersistentVolumeClaim": ("persistentvolumeclaims", "count/persistentvolumeclaims"),
}
_COMPUTE = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True)
class Room:
    """One resource of a quota: what is used, needed and allowed."""

    quota: str
    resource: str
    used: Decimal
    hard: Decimal
    needed: Decimal

    @property
    def after(self) -> Decimal:
        """What would be used with the run."""
        return self.used + self.needed

    @property
    def fits(self) -> bool:
        """Whether the quota allows the run as far as this resource goes."""
        return self.after <= self.hard


def rooms(
    quotas: Iterable[Object], pods: Sequence[tuple[Object, int]], others: Iterable[Object]
) -> list[Room]:
    """What the run needs of each quota. `pods` has one pod of each group, and their number."""
    counted = list(others)
    found = []
    for quota in quotas:
        needed = of_objects(counted) if not _scopes(quota) else {}
        for pod, count in pods:
            if _applies(quota, pod):
                needed = _add(needed, of_pod(pod), count)
        status = quota.get("status") or {}
        hard = status.get("hard") or quota["spec"].get("hard") or {}
        found += [
            Room(
                quota["metadata"]["name"],
                resource,
                quantity.parse((status.get("used") or {}).get(resource, "0")),
                quantity.parse(limit),
                needed[resource],
            )
            for resource, limit in hard.items()
            if needed.get(resource)
        ]
    return found


def of_pod(pod: Object) -> Usage:
    """What a pod counts as, by the names that quotas use."""
    requests, limits = _totals(pod["spec"])
    found: Usage = dict.fromkeys(_COUNTED["Pod"], Decimal(1))
    for resource, amount in requests.items():
        found[f"requests.{resource}"] = amount
        if resource in _COMPUTE:
            found[resource] = amount
    return found | {f"limits.{resource}": amount for resource, amount in limits.items()}


def of_objects(manifests: Iterable[Object]) -> Usage:
    """What other objects count as; claims also by size and class."""
    found: Usage = {}
    for manifest in manifests:
        one = dict.fromkeys(_COUNTED[manifest["kind"]], Decimal(1))
        if manifest["kind"] == "PersistentVolumeClaim":
            size = quantity.parse(manifest["spec"]["resources"]["requests"]["storage"])
            one["requests.storage"] = size
            if name := manifest["spec"].get("storageClassName"):
                one[f"{name}.storageclass.storage.k8s.io/requests.storage"] = size
                one[f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims"] = Decimal(1)
        found = _add(found, one)
    return found


def _add(first: Mapping[str, Decimal], second: Mapping[str, Decimal], times: int = 1) -> Usage:
    return {
        name: first.get(name, Decimal(0)) + second.get(name, Decimal(0)) * times
        for name in {**first, **second}
    }


def _totals(spec: Object) -> tuple[Usage, Usage]:
    """Requests and limits of a pod: its containers together, or an init container that needs more."""
    found: list[Usage] = []
    for kind in ("requests", "limits"):
        total: Usage = {}
        for container in spec.get("containers") or []:
            total = _add(total, _asked(container, kind))
        for container in spec.get("initContainers") or []:
            asked = _asked(container, kind)
            if container.get("restartPolicy") == "Always":  # a sidecar: it stays beside the others
                total = _add(total, asked)
            else:
                total |= {name: max(amount, total.get(name, amount)) for name, amount in asked.items()}
        found.append(total)
    return found[0], found[1]


def _asked(container: Object, kind: str) -> Usage:
    """Requests and limits of a container; as on the server, a limit is the default request."""
    resources = container.get("resources") or {}
    written = resources.get(kind) or {}
    if kind == "requests":
        written = {**(resources.get("limits") or {}), **written}
    return {name: quantity.parse(amount) for name, amount in written.items()}


def _scopes(quota: Object) -> list[Object]:
    spec = quota["spec"]
    plain = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or []]
    return plain + list((spec.get("scopeSelector") or {}).get("matchExpressions") or [])


def _applies(quota: Object, pod: Object) -> bool:
    spec = pod["spec"]
    requests, limits = _totals(spec)
    is_bounded = spec.get("activeDeadlineSeconds") is not None
    priority = spec.get("priorityClassName")
    facts = {
        "BestEffort": not requests and not limits,
        "NotBestEffort": bool(requests or limits),
        "Terminating": is_bounded,
        "NotTerminating": not is_bounded,
    }
    for scope in _scopes(quota):
        if scope["scopeName"] == "PriorityClass":
            values = scope.get("values") or []
            is_met = {
                "Exists": priority is not None,
                "DoesNotExist": priority is None,
                "In": priority in values,
                "NotIn": priority not in values,
            }[scope["operator"]]
        else:
            is_met = facts.get(scope["scopeName"], False)
        if not is_met:
            return False
    return True
