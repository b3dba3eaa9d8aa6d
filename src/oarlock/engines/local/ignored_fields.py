"""Fields for a cluster that have no effect on this machine: listed when a run starts, so that no user relies
on them. Fields that change nothing for the program (labels, queues) are not worth a line."""

from __future__ import annotations

import os

from oarlock.engines.local import gpu_devices, gpu_shares
from oarlock.engines.shared import specs
from oarlock.job.model import Job
from oarlock.job.parsing.fields import Section, fields_of

_OF_A_ROLE = ("cpu", "memory", "image", "node_selector", "tolerations")
_OF_KUBERNETES = ("image", "node_selector", "tolerations", "volumes", "secrets", "shm", "pod")


def of(job: Job) -> list[str]:
    """The fields that the job gives and that have no effect here, as the job file calls them."""
    found = [
        f"roles.{name}.{field}"
        for name, role in specs.roles(job).items()
        for field in _OF_A_ROLE
        if any(_is_given(part, field) for part in role.parts)
    ]
    found += [f"kubernetes.{field}" for field in _OF_KUBERNETES if _is_given(job.kubernetes, field)]
    if gpu_shares.asked(job) and not gpu_devices.find(os.environ).all:
        found.append("gpu (this machine has none)")
    return found


def _is_given(section: Section, name: str) -> bool:
    return bool(getattr(section, name) != fields_of(type(section))[name].default)
