"""Writes docs/job-file.md from the declarations that read a job file. Run `make docs`.

Types, defaults and descriptions come from `oarlock.job`, the same fields that `oarlock schema` prints. Only
the preface, a few notes and one example for each field are written here. A field without an example, an
example without a field and an example that Oarlock would refuse are errors.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path
from typing import Any

import yaml

from oarlock.job.model import Job, to_data
from oarlock.job.parsing.fields import Field, Section, Sections, fields_of, read_section
from oarlock.job.parsing.kinds import Kind
from oarlock.quantities import Duration, Replicas, Size

PAGE = Path(__file__).with_name("job-file.md")

PREFACE = """\
# The job file

A job file says what to run and with how many tasks. One field is required: `program`, `module` or
`command`.

```yaml
name: mnist
program: train.py
args: [--epochs, 3]
roles:
  worker: 2
limits:
  restarts: 3
```

In a folder, Oarlock looks for `job.yaml`, `job.yml`, `[tool.oarlock]` in `pyproject.toml` and `train.py`, in
this order. The same fields work in five places:

| place | example |
|---|---|
| `job.yaml`, or any other `.yaml` or `.toml` file | `oarlock run job.yaml` |
| `[tool.oarlock]` in `pyproject.toml` | `roles.worker = 2` |
| the program's own `# /// script` block, under `[tool.oarlock]` | `# roles.worker = 2` |
| flags, which override files | `oarlock run --set limits.restarts=5 train.py` |
| Python | `oarlock.Job("train.py", workers=2, limits={"restarts": 5})` |

`oarlock init train.py` writes a commented job file. `oarlock run --dry-run` shows the job as Oarlock reads
it, its tasks and their environments. `oarlock schema` prints the JSON schema for your editor. Oarlock reports
a mistake with file, line and field before it creates anything.

- **duration**: a number of seconds, or text such as `90s`, `10m`, `1h30m`, `2d`.
- **size**: a number of bytes, or text such as `512Mi`, `4Gi`, `2G`.
- An empty value (`name:`) means the default. `none`, where the type has it, means "no limit" or "no such
  thing".
"""

NOTES = {
    "Storage": "A folder is relative to the job file. Without an entry, checkpoints, model and logs are in"
    " the run's record and data is in `$OARLOCK_HOME/data/<job>`; on Kubernetes all of them are on the job's"
    " claim ([Storage](kubernetes.md#storage)).",
    "Limits": "On Kubernetes `rendezvous` is 30m unless the job says otherwise: nodes may have to start.",
    "Role": "Local runs use `replicas`, `processes` and `gpu`, and say which of the others a job gives.",
    "Kubernetes": "[Kubernetes](kubernetes.md) explains these settings in context.",
    "Serve": "[Serving](serving.md) explains these settings in context. `cpu`, `memory`, `image` and `pip`"
    " are for Kubernetes.",
    "Toleration": "For `roles.ROLE.tolerations` and `kubernetes.tolerations`.",
}

# One entry for each section: where it is in the file, and an example for each of its fields.
EXAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    "Job": (
        "",
        {
            "name": "mnist",
            "program": "train.py",
            "module": "package.train",
            "command": "[torchrun, train.py]",
            "args": "[--epochs, 3]",
            "pip": "[numpy>=2, pillow]",
            "env": "{TF_CPP_MIN_LOG_LEVEL: 2}",
            "framework": "torch",
            "roles": "{worker: 4}",
            "ingest": "prepare.py",
            "evaluate": "score.py",
            "serve": "{replicas: 2}",
            "storage": "{data: ./data}",
            "limits": "{restarts: 5}",
            "warm": "10m",
            "observe": "false",
            "chief_name": "master",
            "network": "private",
            "seed": "7",
            "kubernetes": "{namespace: team}",
        },
    ),
    "Roles": ("roles", {"chief": "1", "worker": "2..8", "ps": "2", "evaluator": "1"}),
    "Role": (
        "roles.ROLE",
        {
            "replicas": "2..8",
            "processes": "4",
            "cpu": "500m",
            "memory": "16Gi",
            "gpu": "4",
            "image": "python:3.11-slim",
            "node_selector": "{gpu: a100}",
            "tolerations": "[{key: gpu, operator: Exists}]",
            "groups": "[{replicas: 2, gpu: 4}, {replicas: 6, gpu: 1}]",
        },
    ),
    "Ingest": (
        "ingest",
        {
            "program": "prepare.py",
            "module": "package.prepare",
            "command": "[./fetch.sh, all]",
            "args": "[--size, 28]",
            "env": "{LANG: C.UTF-8}",
            "pip": "[pillow]",
            "cpu": "2",
            "memory": "8Gi",
            "when": "always",
            "alone": "true",
            "sources": "{raw.csv: https://example.com/raw.csv}",
        },
    ),
    "Source": (
        "ingest.sources.NAME",
        {
            "url": "s3://bucket/raw.csv",
            "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        },
    ),
    "Evaluate": (
        "evaluate",
        {
            "program": "score.py",
            "module": "package.score",
            "command": "[./score.sh]",
            "args": "[--batch, 256]",
            "env": "{THREADS: 1}",
            "pip": "[scikit-learn]",
            "cpu": "2",
            "memory": "8Gi",
            "gpu": "1",
            "image": "python:3.11-slim",
        },
    ),
    "Serve": (
        "serve",
        {
            "replicas": "2",
            "cpu": "2",
            "memory": "4Gi",
            "gpu": "1",
            "image": "python:3.11-slim",
            "pip": "[pillow]",
            "env": "{LANG: C.UTF-8}",
            "port": "8080",
            "version": "best",
            "batching": "{max_rows: 32}",
            "deadline": "5s",
            "body_limit": "8Mi",
            "access_log": "true",
            "predict": "predict.py",
            "ingress": "digits.example.com",
            "gateway": "infra/gate",
            "when": "accuracy >= 0.95",
        },
    ),
    "Batching": ("serve.batching", {"max_rows": "32", "queue": "0.5s"}),
    "Storage": (
        "storage",
        {
            "data": "./data",
            "checkpoints": "./checkpoints",
            "eval": "./eval",
            "model": "./model",
            "logs": "./logs",
            "snapshots": "s3://bucket/runs",
            "weights": "s3://bucket/runs/mnist-one@1200",
        },
    ),
    "Limits": (
        "limits",
        {
            "restarts": "5",
            "stall": "2m",
            "runtime": "12h",
            "rendezvous": "30m",
            "grace": "2m",
            "evaluate": "30m",
            "logs": "100Mi",
        },
    ),
    "Kubernetes": (
        "kubernetes",
        {
            "context": "training",
            "namespace": "team",
            "image": "python:3.11-slim",
            "pull_policy": "IfNotPresent",
            "pull_secrets": "[registry-login]",
            "user": "image",
            "service_account": "trainer",
            "node_selector": "{pool: training}",
            "tolerations": "[{key: dedicated, operator: Exists}]",
            "priority_class": "batch-low",
            "scheduler": "volcano",
            "queue": "team-queue",
            "labels": "{cost-center: '4711'}",
            "annotations": "{example.com/owner: vision}",
            "claim": "{size: 100Gi}",
            "volumes": "{data: {path: /data, claim: imagenet}}",
            "secrets": "{gcp-key: /secrets/gcp}",
            "shm": "1Gi",
            "ttl": "1h",
            "pod": "{runtimeClassName: nvidia}",
        },
    ),
    "Claim": (
        "kubernetes.claim",
        {
            "name": "mnist-two",
            "existing": "true",
            "size": "100Gi",
            "storage_class": "fast",
            "access": "ReadWriteMany",
            "shared": "true",
        },
    ),
    "Volume": (
        "kubernetes.volumes.NAME",
        {
            "path": "/data",
            "claim": "imagenet",
            "size": "100Gi",
            "storage_class": "fast",
            "access": "ReadWriteMany",
            "empty": "true",
            "read_only": "true",
            "roles": "[worker]",
        },
    ),
    "SecretUse": (
        "kubernetes.secrets.NAME",
        {"path": "/secrets/gcp", "variables": "true", "env": "{WANDB_API_KEY: key}", "roles": "[worker]"},
    ),
    "Toleration": (
        "tolerations",
        {
            "key": "dedicated",
            "operator": "Equal",
            "value": "training",
            "effect": "NoExecute",
            "tolerationSeconds": "300",
        },
    ),
}


def page() -> str:
    sections = dict.fromkeys(_sections(Job))
    if unused := EXAMPLES.keys() - {section.__name__ for section in sections}:
        raise ValueError(f"examples for sections that do not exist: {', '.join(unused)}")
    note = "<!-- Written by docs/job_file_reference.py; `make docs` renews it. -->\n\n"
    return note + PREFACE + "".join(map(_written, sections))


def _sections(section: type[Section]) -> Iterator[type[Section]]:
    """A section, then those inside it, in the order of their fields."""
    yield section
    for field in fields_of(section).values():
        inner = field.kind.of if isinstance(field.kind, Sections) else field.kind
        if isinstance(inner, type) and inner is not section:
            yield from _sections(inner)


def _written(section: type[Section]) -> str:
    place, examples = EXAMPLES[section.__name__]
    fields = fields_of(section)
    if fields.keys() != examples.keys():
        raise ValueError(f"{section.__name__}: one example for each field: {fields.keys() ^ examples.keys()}")
    about = " ".join([*(getdoc(section) or "").split(), NOTES.get(section.__name__, "")]).strip()
    lines = [
        f"\n## {place or 'Top level'}\n",
        f"{textwrap.fill(about, 120, break_on_hyphens=False)}\n",
        "| field | type | default | meaning | example |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(name, field, examples[name]) for name, field in fields.items()]
    return "\n".join(lines) + "\n"


def _row(name: str, field: Field, example: str) -> str:
    _check(name, field, yaml.safe_load(example))
    about = field.description.replace("<", "\\<")
    cells = [f"`{name}`", _type(field), _default(field), about, f"`{name}: {example}`"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _check(name: str, field: Field, value: Any) -> None:
    try:
        read_section(field.kind, value) if isinstance(field.kind, type) else field.kind.read(value)
    except ValueError as problem:
        raise ValueError(f"the example of {name}: {problem}") from None


def _type(field: Field) -> str:
    if isinstance(field.kind, type):
        place = EXAMPLES[field.kind.__name__][0]
        forms = [f"[{place}](#{_anchor(place)})", *_short_forms(field.kind)]
        return " or ".join([*forms, "`none`"] if field.may_be_none else forms)
    if isinstance(field.kind, Sections):
        place = EXAMPLES[field.kind.of.__name__][0]
        return f"{'mapping' if field.kind.names else 'list'} of [{place}](#{_anchor(place)})"
    return _words(field.kind.schema)


def _short_forms(section: type[Section]) -> list[str]:
    """What a value that is no mapping stands for."""
    forms = []
    if section.shorthand:
        short = fields_of(section)[section.shorthand].kind
        assert isinstance(short, Kind)
        forms.append(f"its `{section.shorthand}`")
    return [*forms, "list of groups"] if section.list_of else forms


_PATTERNS = {
    Duration.PATTERN: "duration",
    Size.PATTERN: "size",
    Replicas.PATTERN: "`min..max`",
    "[Nn][Oo][Nn][Ee]": "`none`",
    "[0-9]{1,9}m": "millicores (`500m`)",
}
_NUMBER_OF = {"duration", "size"}  # a bare number is one of these, too


def _words(schema: dict[str, Any]) -> str:
    """A JSON schema as a few words."""
    if "anyOf" in schema:
        several, *rest = forms = schema["anyOf"]
        if several.get("items") in rest:
            return f"{_words(several['items'])}, or a list"
        words = list(dict.fromkeys(_words(form) for form in forms))
        if _NUMBER_OF & set(words):
            words = [word for word in words if "number" not in word]
        return " or ".join(words)
    if "enum" in schema:
        return ", ".join(f"`{name}`" for name in schema["enum"])
    kind = schema["type"]
    if kind == "string":
        return _PATTERNS.get(schema.get("pattern", "").removeprefix("^(?:").removesuffix(")$"), "text")
    if kind == "array":
        return "list"
    if kind == "integer":
        return f"whole number ({_bounds(schema)})"
    return {"number": "number", "boolean": "`true`, `false`", "object": "mapping"}[kind]


def _bounds(schema: dict[str, Any]) -> str:
    least, most = schema["minimum"], schema.get("maximum")
    return f"{least} or more" if most is None else f"{least} to {most}"


def _default(field: Field) -> str:
    value = field.default
    if field.required:
        return "required"
    if value is None:
        has_none = isinstance(field.kind, Kind) and "[Nn][Oo][Nn][Ee]" in str(field.kind.schema)
        return "`none`" if has_none else "not set"
    if isinstance(value, Section):
        data = to_data(value)
        return f"`{yaml.safe_dump(data, default_flow_style=True).strip()}`" if data else "its defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str) and value.startswith("("):  # no valid value, but words about one
        return value.strip("()")
    if isinstance(value, (tuple, dict)):
        return "empty"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _anchor(place: str) -> str:
    """As GitHub makes it from a heading."""
    return place.lower().replace(".", "")


if __name__ == "__main__":
    PAGE.write_text(page())
    print(
        f"wrote {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}", file=sys.stderr
    )
