"""Runs with `exec` in a run's leading pod: sends one question to its agent and prints the answer. Both are
JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from oarlock.agent.net import control
from oarlock.agent.pod.main import CODE
from oarlock.agent.protocol.spec import Spec


def main() -> int:
    """Run `ask QUESTION`."""
    spec = Spec.from_json((CODE / "spec.json").read_text())
    try:
        answer = control.ask(Path(spec.folder), json.loads(sys.argv[1]), Path(spec.token))
    except control.UnreachableError as error:
        answer = {"ok": False, "unreachable": True, "why": str(error)}
    print(json.dumps(answer))
    return 0
