"""Several processes that import TensorFlow once: a fork for each task, as the launcher has them.

    python forked_tasks.py PROGRAM TASKS     TASKS: a JSON list of {"words", "environ", "log", "code"}

How a task ended is written to its file `code`. A task alone is not forked: it imports what it likes.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any


def main(program: str, tasks: list[dict[str, Any]]) -> None:
    if len(tasks) > 1:
        from oarlock.training.keras import correction

        correction.install()  # before anybody imports Keras
        import keras  # noqa: F401
        import tensorflow  # noqa: F401
    running = {}
    for task in tasks:
        pid = os.fork()
        if pid == 0:
            become(program, task)
        running[pid] = Path(task["code"])
    while running:
        pid, status = os.wait()
        path = running.pop(pid)
        path.with_suffix(".new").write_text(str(os.waitstatus_to_exitcode(status)))
        path.with_suffix(".new").rename(path)


def become(program: str, task: dict[str, Any]) -> None:
    code = 1
    try:
        log = os.open(task["log"], os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(task["environ"])
        sys.argv = [program, *task["words"]]
        runpy.run_path(program, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
