"""`oarlock run --dry-run --on kubernetes` shows what the pods then have."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.commands import Command
from tests.support.kubernetes.small import SMALL_WORDS, sets

PROGRAM = "import json, os; print(json.dumps(dict(os.environ)))"
EVALUATOR = sets("roles.evaluator.cpu=0.05", "roles.evaluator.memory=200Mi", "roles.evaluator.replicas=1")


def test_what_it_shows_is_what_pods_have(oarlock: Command, tmp_path: Path, ended: list[str]) -> None:
    ended.append("live-shown")
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ("--on", "kubernetes", "--name", "live-shown", "-n", "2", *SMALL_WORDS, *EVALUATOR)
    dry = oarlock("run", "--dry-run", "--json", *words, "train.py", cwd=tmp_path)
    assert dry.returncode == 0, dry.stderr
    shown = {task["name"]: task["env"] for task in json.loads(dry.stdout)["tasks"]}
    done = oarlock("run", *words, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(re.findall(r"^(\S+-\d) \| (\{.*\})$", done.stdout, re.MULTILINE))
    assert said.keys() == shown.keys()
    for task, env in shown.items():
        found = json.loads(said[task])
        for name, value in env.items():
            pattern = ".+".join(map(re.escape, re.split("<[^>]*>", value)))
            assert re.fullmatch(pattern, found[name]), (task, name, value, found[name])
        assert {name for name in found if name.startswith("OARLOCK_")} - {
            "OARLOCK_CORES",
            "OARLOCK_FD",
        } <= env.keys()
