"""The command line: `oarlock VERB`. Each verb is one file, imported only when the verb is called.

`--help` and `ps` must answer in 100 ms, so nothing here imports a framework, an engine, rich or yaml. Imports
`errors`, `records`, `screens` and `wording`.
"""

from __future__ import annotations

import gc
import io
import sys
from typing import NoReturn

import click

from oarlock.cli.group import Verbs
from oarlock.errors import OarlockError
from oarlock.screens.output import complain, hint


def main() -> NoReturn:
    """Run the console script: an error is one line on stderr and an exit code, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # output of a program may not be encodable
    try:
        code = Verbs().main(prog_name="oarlock", standalone_mode=False)
    except click.Abort:
        code = 130
    except click.ClickException as problem:
        code = _complain(problem)
    except OarlockError as problem:
        complain(str(problem))
        code = problem.exit_code
    except OSError as problem:  # a full disk, another user's folder
        complain(f"{problem.filename or 'the system'}: {problem.strerror or problem}")
        code = 1
    except Exception as problem:  # a bug in Oarlock
        from oarlock.cli import crashes

        complain(crashes.keep(problem))
        code = crashes.EXIT_CODE
    gc.freeze()  # otherwise the interpreter looks for cycles once more at exit: 10 to 40 ms
    sys.exit(code)


def _complain(problem: click.ClickException) -> int:
    complain(problem.format_message())
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    if context is not None:
        hint(f"{context.command_path} --help")
    return problem.exit_code
