"""Refusals of admission: quota, LimitRange, Pod Security, policies, and missing objects that a pod names.

The same message comes in two ways: as the answer to a dry run, and in events of a Job whose pods are refused
later. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from oarlock.engines.kubernetes.api.names import SERVER
from oarlock.engines.kubernetes.diagnose.problem import cut

_WORDS = 120  # characters of the server's message
_FIELDS = {"cpu": "cpu", "memory": "memory", "nvidia.com/gpu": "gpu"}
_CONTAINER = "containers: [{name: main, "


class Refusal(NamedTuple):
    """Why a pod is refused, and what to do."""

    said: str
    fix: str


def refusal(text: str, role: str = "") -> Refusal:
    """Explain a message of admission: the part after `is forbidden: `, or all of it."""
    why = re.split(r" is forbidden: ", text, maxsplit=1)[-1].strip()
    for reading in (_quota, _unspecified, _limit_range, _pod_security, _missing, _policy, _ending):
        found = reading(why, role)
        if found is not None:
            return found
    return Refusal(f"the cluster refuses its pod: {cut(why, _WORDS)}", "ask the namespace's administrator")


def _quota(why: str, role: str) -> Refusal | None:
    matched = re.search(r"exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)", why)
    if matched is None:
        return None
    name, *amounts = matched.groups()
    requested, used, limited = map(_amounts, amounts)
    full = [
        f"{resource} {used.get(resource, '?')} of {limited.get(resource, '?')} used, {amount} asked for"
        for resource, amount in requested.items()
    ]
    said = f"quota {name} of the namespace does not allow it: {'; '.join(full)}"
    settings = [_setting(role, resource) for resource in requested if _field(resource)]
    if any(used.get(resource) == "0" for resource in requested) and settings:
        return Refusal(said, f"ask for less with {settings[0]}, or ask its administrator for more")
    less = f", ask for less with {settings[0]}" if settings else ""
    return Refusal(said, f"end other runs (oarlock ps lists them){less}, or ask its administrator for more")


def _unspecified(why: str, _: str) -> Refusal | None:
    """A quota on a field such as limits.cpu, which Oarlock's pods do not have by default."""
    matched = re.search(r"failed quota: ([^:]+): must specify ([\w./]+)", why)
    if matched is None:
        return None
    name, wanted = matched.groups()
    part, _, resource = wanted.partition(".")
    return Refusal(
        f"quota {name} of the namespace requires every pod to set its {wanted}",
        f"set it: --set 'kubernetes.pod={{{_CONTAINER}resources: {{{part}: {{{resource}: 2}}}}}}]}}'",
    )


def _limit_range(why: str, role: str) -> Refusal | None:
    matched = re.search(
        r"(maximum|minimum) (\S+) usage per (\w+) is ([^,\s]+), but (?:(?:limit|request) is ([^,\s\]]+)|no)",
        why,
    )
    if matched is None:
        matched = re.search(r"(\S+) max limit to request ratio per (\w+) is ([^,\s]+)", why)
        if matched is None:
            return None
        resource, _, ratio = matched.groups()
        said = (
            f"the namespace's LimitRange wants the limit of {resource} to be at most {ratio} of its request"
        )
        return Refusal(said, f"set both under --set 'kubernetes.pod={{{_CONTAINER}resources: ...}}]}}'")
    most, resource, _, bound, amount = matched.groups()
    word = "at most" if most == "maximum" else "at least"
    if amount is None:
        said = f"the namespace's LimitRange wants a limit for {resource} of {word} {bound}"
        wanted = f"{_CONTAINER}resources: {{limits: {{{resource}: {bound}}}}}}}]"
        return Refusal(said, f"set it: --set 'kubernetes.pod={{{wanted}}}'")
    shm = ", with /dev/shm" if resource == "memory" else ""
    said = f"the namespace's LimitRange allows {word} {bound} of {resource}{shm}, and it asks for {amount}"
    change = "less" if most == "maximum" else "more"
    return Refusal(
        said, f"ask for {change} with {_setting(role, resource)}, or ask its administrator to change it"
    )


def _pod_security(why: str, _: str) -> Refusal | None:
    matched = re.search(r'violates PodSecurity "([^":]+)[^"]*": (.*)', why, re.DOTALL)
    if matched is None:
        return None
    level, rules = matched.groups()
    short = re.sub(r" \([^()]*must set ([^()]*)\)", r": must set \1", rules)
    said = f"Pod Security {level} of the namespace forbids {cut(short, _WORDS)}"
    if re.search(r"runAsNonRoot|runAsUser", rules):
        return Refusal(
            said, "run it as another user: --set kubernetes.user=1000, and no runAs... under kubernetes.pod"
        )
    return Refusal(said, f"take {_culprit(rules)} out of kubernetes.pod, or use a namespace that allows it")


def _missing(why: str, _: str) -> Refusal | None:
    if matched := re.search(r'serviceaccount "([^"]+)" not found', why):
        return Refusal(
            f"there is no service account {matched[1]} in the namespace",
            "leave kubernetes.service_account out, or choose one of: kubectl get serviceaccounts",
        )
    if matched := re.search(r"no PriorityClass with name (\S+) was found", why):
        return Refusal(
            f"the cluster has no priority class {matched[1]}",
            "leave kubernetes.priority_class out, or choose one of: kubectl get priorityclasses",
        )
    return None


def _policy(why: str, _: str) -> Refusal | None:
    if "security context constraint" in why:
        return Refusal(
            "OpenShift gives each namespace its own users, and this user is not one of them",
            "let it choose the user: --set kubernetes.user=image",
        )
    matched = re.search(r'admission webhook "([^"]+)" denied the request: (.*)', why, re.DOTALL) or re.search(
        r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.*)", why, re.DOTALL
    )
    if matched is None:
        return None
    said = f"the cluster's policy {matched[1]} refuses it: {cut(matched[2], _WORDS)}"
    if "runAsUser" in matched[2]:
        return Refusal(said, "let it choose the user: --set kubernetes.user=image")
    return Refusal(said, "do as it says under kubernetes.labels or kubernetes.pod, or ask its administrator")


def _ending(why: str, _: str) -> Refusal | None:
    matched = re.search(r"in namespace (\S+) because it is being terminated", why)
    if matched is None:
        return None
    return Refusal(
        f"namespace {matched[1]} is being deleted", "choose another: --set kubernetes.namespace=..."
    )


def _amounts(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (pair.partition("=") for pair in text.split(","))}


def _field(resource: str) -> str | None:
    return _FIELDS.get(resource.removeprefix("requests.").removeprefix("limits."))


def _setting(role: str, resource: str) -> str:
    section = "serve" if role == SERVER else f"roles.{role or 'worker'}"
    return f"--set {section}.{_field(resource) or resource}=..."


def _culprit(rules: str) -> str:
    """The field of the pod that violates a rule."""
    known = ("hostNetwork", "hostPID", "hostIPC", "hostPort", "privileged", "allowPrivilegeEscalation")
    for field in (*known, "capabilities", "seccompProfile", "procMount", "seLinuxOptions", "sysctls"):
        if field in rules:
            return field
    return "the hostPath volume" if "hostPath" in rules or "volume types" in rules else "what it names"
