"""Checks of a cluster, in the same form as the checks of this machine."""

from __future__ import annotations

from collections.abc import Iterator

from oarlock.engines.before_start import Finding, finding
from oarlock.engines.kubernetes.api import quantity
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.plan import access
from oarlock.errors import OarlockError
from oarlock.units import duration, plural

_APART = 10.0  # seconds between two clocks that begin to confuse people


def findings(context: str | None, namespace: str | None, image: str | None) -> Iterator[Finding]:
    """Yield the result of each check as soon as it is known; stop if the cluster does not answer."""
    try:
        api = Api(context, namespace)
    except OarlockError as problem:
        yield finding("cluster", "failed", str(problem))
        return
    try:
        yield from _findings(api, image)
    except ApiError as error:
        yield _unanswered(api, error)
    finally:
        api.close()


def _findings(api: Api, image: str | None) -> Iterator[Finding]:
    greeting = access.greet(api)
    user = api.known_user()  # before anything is called fine: the server tells strangers its version too
    yield finding("cluster", "ok", f"{api.server}, context {api.context or '-'}, namespace {api.namespace}")
    yield _version(greeting)
    yield _user(user)
    for need in access.NEEDS:
        yield _permission(api, need)
    yield _quotas(access.listed(api, "ResourceQuota"))
    yield _limits(access.listed(api, "LimitRange"))
    yield _pod_security(access.pod_security(api))
    yield _storage(access.has_default_class(api))
    detail = f"{image}: cannot tell" if image else "cannot tell"
    yield finding("image", "unknown", f"{detail}: it is pulled by the nodes, when a run starts")
    yield _clock(greeting.ahead)


def _unanswered(api: Api, error: ApiError) -> Finding:
    if error.status == 401:
        detail = f"{api.server} does not accept your credentials: {error.message}"
        return finding("cluster", "failed", detail, f"sign in again for context {api.context or '-'}")
    if error.status == 0:
        detail = f"{api.server}: {error.message}"
        return finding("cluster", "failed", detail, "is the address right, and is the network (VPN) up?")
    return finding("cluster", "failed", f"{api.server}: {error.doing}: {error.message}")


def _version(greeting: access.Greeting) -> Finding:
    if greeting.is_new_enough is None:
        return finding("version", "unknown", f"cannot tell: it calls itself {greeting.version!r}")
    if greeting.is_new_enough:
        return finding("version", "ok", f"Kubernetes {greeting.version}")
    oldest = ".".join(map(str, access.OLDEST))
    return finding(
        "version", "failed", f"Kubernetes {greeting.version}: too old", f"use a cluster of {oldest} or newer"
    )


def _user(user: str | None) -> Finding:
    if user is None:
        return finding("user", "unknown", "cannot tell: the server does not say")
    return finding("user", "ok", user)


def _permission(api: Api, need: access.Need) -> Finding:
    missing = access.lacking(api, need)
    if not missing:
        return finding(need.name, "ok", f"you may {', '.join(need.verbs)}")
    ours = dict.fromkeys(verb for one in missing for verb in need.verbs[one].split(", "))
    wanted = ", ".join(f"`{verb}`" for verb in ours)
    fix = f"ask for the role edit in namespace {api.namespace}"
    state = "failed" if need.is_vital else "warning"
    detail = f"you may not {', '.join(missing)}: needed for {wanted}"
    return finding(need.name, state, detail, fix)


def _quotas(quotas: list[Object] | None) -> Finding:
    if quotas is None:
        return finding("quota", "unknown", "cannot tell: you may not list resourcequotas")
    if not quotas:
        return finding("quota", "ok", "none")
    used_up = [full for quota in quotas for full in _used_up(quota)]
    if used_up:
        return finding("quota", "warning", f"used up: {', '.join(used_up)}", "oarlock plan says what fits")
    return finding("quota", "ok", "; ".join(map(_quota, quotas)))


def _quota(quota: Object) -> str:
    status = quota.get("status") or {}
    used = status.get("used") or {}
    room = [f"{resource} {used.get(resource, 0)} of {hard}" for resource, hard in _hard(quota).items()]
    return f"{quota['metadata']['name']}: {', '.join(room)}"


def _used_up(quota: Object) -> list[str]:
    used = (quota.get("status") or {}).get("used") or {}
    return [
        f"{resource} of {quota['metadata']['name']} ({hard})"
        for resource, hard in _hard(quota).items()
        if quantity.parse(used.get(resource, "0")) >= quantity.parse(hard)
    ]


def _hard(quota: Object) -> Object:
    hard: Object = (quota.get("status") or {}).get("hard") or quota["spec"].get("hard") or {}
    return hard


def _limits(ranges: list[Object] | None) -> Finding:
    if ranges is None:
        return finding("LimitRange", "unknown", "cannot tell: you may not list limitranges")
    texts = [
        f"{one['metadata']['name']}: {word} {', '.join(f'{k} {v}' for k, v in bounds.items())}"
        f" per {item['type']}"
        for one in ranges
        for item in one["spec"]["limits"]
        for word in ("max", "min")
        if (bounds := item.get(word))
    ]
    if texts:
        return finding("LimitRange", "ok", "; ".join(texts))
    return finding("LimitRange", "ok", plural(len(ranges), "set of defaults") if ranges else "none")


def _pod_security(level: str | None) -> Finding:
    if level is None:
        return finding(
            "Pod Security", "unknown", "cannot tell: you may not read the namespace, and a dry run is refused"
        )
    return finding("Pod Security", "ok", f"{level}; Oarlock's pods comply with restricted")


def _storage(has_default: bool | None) -> Finding:
    if has_default is None:
        return finding(
            "storage class", "unknown", "cannot tell whether there is a default: you may not list them"
        )
    if has_default:
        return finding("storage class", "ok", "there is a default")
    fix = "name one: --set kubernetes.claim.storage_class=..."
    return finding("storage class", "warning", "there is no default, so a claim would wait forever", fix)


def _clock(ahead: float | None) -> Finding:
    if ahead is None:
        return finding("clock", "unknown", "cannot tell: the server does not say what time it is")
    if abs(ahead) <= _APART:
        return finding("clock", "ok", "the server's clock agrees within a few seconds")
    word = "ahead" if ahead > 0 else "behind"
    detail = f"the server's clock is {duration(abs(ahead))} {word}: times and ages will look wrong"
    return finding("clock", "warning", detail, "set the clock of this machine: timedatectl set-ntp true")
