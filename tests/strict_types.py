"""mypy over everything: once as pyproject.toml says, then once for each example, by itself.

The programs of an example import the modules beside them, and `import model` is another module in each
folder: a run of mypy has one of a name. What comes from a framework has no type, so in the examples it may
be subclassed, decorate and be returned. mypy rechecks all modules when such options change: the examples
have a cache of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MYPY = Path(sys.executable).parent / "mypy"
OF_EXAMPLES = [
    "--cache-dir=.mypy_cache/examples",
    "--follow-imports=silent",  # the first run says what is wrong with Oarlock itself
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
    "--no-warn-return-any",
]


def main() -> int:
    codes = [subprocess.run([MYPY], cwd=ROOT, check=False).returncode]
    for example in sorted({path.parent for path in (ROOT / "examples").glob("*/*.py")}):
        environ = {**os.environ, "MYPYPATH": str(example)}
        words = [*OF_EXAMPLES, f"examples/{example.name}"]
        codes.append(subprocess.run([MYPY, *words], cwd=ROOT, check=False, env=environ).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
