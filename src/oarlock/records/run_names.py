"""Names of runs: which are valid, and new ones."""

from __future__ import annotations

import random
import re

from oarlock.errors import JobError

_LETTERS = "abcdefghijkmnpqrstuvwxyz"
_NAME = "[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"  # also valid in Kubernetes, with the name of a role appended
_EXPECTED = "lower-case letters, digits and '-', starting with a letter, at most 40 characters"


def check_name(name: str) -> str:
    """Return `name` if it is a valid name for a run; raise JobError otherwise."""
    if not re.fullmatch(_NAME, name):
        raise JobError(f"invalid run name {name!r}; expected {_EXPECTED}")
    return name


def new_name(job: str) -> str:
    """Return the name of the job with four random letters."""
    return f"{job}-{''.join(random.SystemRandom().choices(_LETTERS, k=4))}"
