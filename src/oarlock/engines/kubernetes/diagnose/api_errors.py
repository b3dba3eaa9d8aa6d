"""What a refusal or the silence of the API server means. Pure."""

from __future__ import annotations

import re

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.diagnose.admission import refusal
from oarlock.engines.kubernetes.diagnose.problem import Problem, cut, problem

_READING = ("get", "list", "watch")
_LOGIN = (
    "log in to the cluster again (kubectl get pods must work), or choose another --set kubernetes.context=..."
)
_WORDS = 140  # characters of the server's message


def explain(error: ApiError) -> Problem:
    """Say in words what an error of the API server means, and what to do."""
    if error.status == 0:
        return _away(error.message)
    if error.status == 401 or 'User "system:anonymous"' in error.message:
        return _stranger(error.message)
    if error.status == 403:
        return _forbidden(error)
    if error.status == 404:
        return _missing(error)
    if error.status == 409:
        return _conflict(error)
    if error.status in (400, 413, 422):
        return _invalid(error)
    if error.status == 429 or error.status >= 500:
        said = f"the API server cannot answer now: {cut(error.message, _WORDS)}"
        return problem(said, "try again in a moment")
    return problem(f"the API server says no: {cut(error.message, _WORDS)}", "ask the cluster's administrator")


def _away(message: str) -> Problem:
    lower = message.lower()
    if "certificate" in lower:
        return problem(
            "the API server's certificate is not the one that the kubeconfig expects",
            "get a new kubeconfig for this cluster, or check that no proxy is in between",
        )
    if "name or service not known" in lower or "name resolution" in lower or "nodename nor servname" in lower:
        why = "its name is unknown"
    elif "refused" in lower:
        why = "connection refused"
    elif "timed out" in lower or "timeout" in lower:
        why = "no answer in time"
    elif "disconnected" in lower or "reset by peer" in lower or "eof" in lower:
        why = "it ended the connection"
    else:
        why = cut(re.sub(r"^the API server does not answer \((.*)\)$", r"\1", message), 100)
    return problem(
        f"the cluster's API server cannot be reached: {why}",
        "check network and VPN, and that kubectl cluster-info works; runs on the cluster continue meanwhile",
    )


def _stranger(message: str) -> Problem:
    if message in ("", "Unauthorized") or "system:anonymous" in message:
        return problem("the cluster does not accept your credentials: they are wrong or have expired", _LOGIN)
    return problem(f"no credentials for the cluster: {cut(message, _WORDS)}", _LOGIN)


def _forbidden(error: ApiError) -> Problem:
    matched = re.search(
        r'User "[^"]*" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"'
        r'(?: in the namespace "([^"]+)")?',
        error.message,
    )
    if matched is None:
        return _refused(error)
    verb, resource, group, namespace = matched.groups()
    name, _, part = resource.partition("/")
    what = name + (f".{group}" if group else "") + (f"/{part}" if part else "")
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    role = "view" if verb in _READING and name not in ("secrets", "pods/exec") else "edit"
    fix = (
        f"ask its administrator for the role {role}, or choose a namespace of yours with kubernetes.namespace"
    )
    return problem(f"you may not {verb} {what} {where}", fix)


def _refused(error: ApiError) -> Problem:
    """A refusal of admission: of the dry run's pod, or of another object."""
    said, fix = refusal(error.message)
    matched = re.match(r'([\w.]+) "([^"]+)" is forbidden: exceeded quota', error.message)
    if matched and matched[1] != "pods":
        said = said.replace("does not allow it", f"allows no more {matched[1]}")
        fix = "delete runs that have ended (oarlock ps lists them), or ask its administrator for more"
    return problem(said, fix)


def _missing(error: ApiError) -> Problem:
    if matched := re.search(r'namespaces "([^"]+)" not found', error.message):
        return problem(
            f"the cluster has no namespace {matched[1]}",
            "choose one that it has with --set kubernetes.namespace=...; kubectl get namespaces lists them",
        )
    if matched := re.search(r'(\w+)[\w.]* "([^"]+)" not found', error.message):
        kind = matched[1].removesuffix("s")
        return problem(f"there is no {kind} {matched[2]}", "oarlock ps lists the runs")
    said = f"the API server does not know {error.doing.rpartition(' ')[2] or 'that'}"
    return problem(
        said, "check the server's address in the kubeconfig and the cluster's version (1.29 or newer)"
    )


def _conflict(error: ApiError) -> Problem:
    matched = re.search(r'(\w+)[\w.]* "([^"]+)" already exists', error.message)
    if error.reason == "AlreadyExists" and matched:
        kind = matched[1].removesuffix("s")
        return problem(
            f"there is already a {kind} {matched[2]}", "choose another --name, or oarlock delete it"
        )
    return problem(f"another client changed it at the same time: {cut(error.message, 120)}", "try again")


def _invalid(error: ApiError) -> Problem:
    if "Too long" in error.message or error.status == 413:
        return problem(
            "the program's folder is too large for the cluster",
            "list what it does not need in .oarlockignore, or put data on a volume (kubernetes.volumes)",
        )
    if "HTTP request to an HTTPS server" in error.message:
        return problem("the API server speaks https", "correct the server's address in the kubeconfig")
    if "ValidatingAdmissionPolicy" in error.message:  # its default is Invalid, not Forbidden
        return _refused(error)
    message = re.sub(r'^\w[\w.]* "[^"]*" is invalid: ', "", error.message)
    said = f"the cluster rejects it: {cut(message, _WORDS)}"
    if re.search(r"\bspec\.|PodSpec", message):
        return problem(said, "correct it under kubernetes.pod, which is merged into every pod")
    return problem(said, "correct that field under kubernetes in the job file")
