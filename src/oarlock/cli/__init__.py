"""The command line: `oarlock VERB`. Each verb is one file, imported only when the verb is called.

`--help` and `ps` must answer in 100 ms, so nothing here imports a framework, an engine, rich or yaml. Imports
`errors`, `records`, `screens` and `wording`.
"""

from __future__ import annotations

import gc
import io
import sys
import threading
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
    except SystemExit as leaving:  # a signal
        code = leaving.code
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
    if any(thread.daemon for thread in threading.enumerate()):
        _end_with_python(int(code or 0))
    sys.exit(code)


def _end_with_python(code: int) -> None:
    """Let C do nothing more once the interpreter has ended. OpenSSL would free what threads still use that
    forward ports or watch pods: one of a hundred exits during a handshake was a crash."""
    import ctypes

    c = ctypes.CDLL(None)
    c.__cxa_atexit(c._exit, ctypes.c_void_p(code), None)  # before the handlers that it already has


def _complain(problem: click.ClickException) -> int:
    complain(problem.format_message())
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    if context is not None:
        hint(f"{context.command_path} --help")
    return problem.exit_code
