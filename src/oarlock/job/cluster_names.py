"""Names in a cluster as a job file writes them: of objects, images, labels and annotations. Pure."""

from __future__ import annotations

import re

from oarlock.job.parsing import compound_kinds, kinds

QUEUE = "kueue.x-k8s.io/queue-name"  # Kueue's label for the queue of a Job

DNS = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"


def object_name(what: str, most: int = 253) -> kinds.Kind:
    """The name of an object in a cluster."""
    longest = f"(?!.{{{most + 1}}})"
    return kinds.text(
        f"{what}: lower-case letters, digits, '-' and '.', at most {most} characters",
        rf"{longest}{DNS}(?:\.{DNS})*",
        hint=_nearest_name,
    )


def dns_label(what: str) -> kinds.Kind:
    """A name that becomes part of another name or of an address."""
    return kinds.text(
        f"{what}: lower-case letters, digits and '-', at most 63 characters",
        f"(?!.{{64}}){DNS}",
        hint=_nearest_name,
    )


def _nearest_name(written: str) -> str:
    name = re.sub("[^a-z0-9]+", "-", written.lower())[:63].strip("-")
    return f"try {name}" if name else ""


def _not_ours(name: str) -> str | None:
    if name.startswith(("oarlock.dev/", "batch.kubernetes.io/")) or name == "app.kubernetes.io/managed-by":
        return "Oarlock or Kubernetes sets it; leave it out"
    return None


IMAGE = kinds.text("an image such as python:3.11-slim", r"\S+")
LABEL_NAME = kinds.text(
    "a name such as team or example.com/team", rf"(?:(?![^/]{{254}}){DNS}(?:\.{DNS})*/)?{_WORD}"
)
LABEL_VALUE = kinds.text(
    "at most 63 letters, digits, '-', '_' and '.', a letter or a digit first and last",
    f"(?:{_WORD})?",
    least=0,
)
LABELS = compound_kinds.pairs(LABEL_NAME, LABEL_VALUE, _not_ours)
ANNOTATIONS = compound_kinds.pairs(LABEL_NAME, kinds.text("text", least=0), _not_ours)
NODE_SELECTOR = compound_kinds.pairs(LABEL_NAME, LABEL_VALUE)
