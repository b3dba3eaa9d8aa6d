"""The page for users of the four recipes: its parts, their job files, and programs that train in these."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "from-the-recipes.md").read_text()

RECIPES = ("The Jinja template", "The Helm chart", "The StatefulSet", "The TFJob")
JINJA, HELM, STATEFUL_SET, TFJOB = RECIPES
PROGRAMS = {JINJA: "jinja", HELM: "helm", STATEFUL_SET: "stateful_set", TFJOB: "tfjob"}


def section(recipe: str) -> str:
    return TEXT.partition(f"\n## {recipe}\n")[2].partition("\n## ")[0]


def job_file(recipe: str) -> str:
    [written] = re.findall(r"```yaml\n(.*?)```", section(recipe), re.DOTALL)
    return str(written)


def place(recipe: str, folder: Path) -> None:
    """Put the job file and its programs there."""
    shutil.copytree(ROOT / "tests" / "docs" / "programs" / PROGRAMS[recipe], folder)
    (folder / "job.yaml").write_text(job_file(recipe))
