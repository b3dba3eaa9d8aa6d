"""Runs in a task's process: makes it look as if `python program.py` had been typed, and runs the program.

The runner adds the task's environment variables, the corrections for Keras and JAX, an `error` event before
the process ends, and an exit that does not hang.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import runpy
import signal
import sys
import threading
import types
from pathlib import Path
from typing import NoReturn

from oarlock.agent.task_side import process_title, program_gpus, task_input
from oarlock.agent.zygote import preimport
from oarlock.agent.zygote.orders import ORDERS, Launch
from oarlock.run.error_text import error_text
from oarlock.system import processes, stack_dump
from oarlock.training.frameworks import eager_torch, jax_cluster, loopback, randomness
from oarlock.training.keras import correction
from oarlock.training.observe import hooks
from oarlock.training.task import channel

_NICE = 10  # for an evaluator: if cores are few, training comes first
_AGENT_FOLDER = str(Path(__file__).parents[1])
# What Python imports before any program, so no module next to the program can shadow it; and Oarlock.
_ALWAYS_THERE = {
    "__main__",
    "abc",
    "codecs",
    "encodings",
    "genericpath",
    "io",
    "os",
    "posixpath",
    "site",
    "stat",
}
_ALWAYS_THERE |= {"_collections_abc", "_sitebuiltins", "oarlock"}


def main() -> NoReturn:
    """Start in a spawned interpreter: `runner LAUNCH EVENTS`, both file descriptors."""
    file_descriptor, events = int(sys.argv[1]), int(sys.argv[2])
    with os.fdopen(file_descriptor, "rb") as file:
        file.seek(0)
        launch = ORDERS.from_data(json.loads(file.read()))
    assert isinstance(launch, Launch)
    adopt_environment(launch, events)
    preimport.import_oarlock()
    _run_program(launch)


def run(launch: Launch, output: int, events: int, stdin: int | None = None) -> NoReturn:
    """Start in a fork of the zygote."""
    settle(launch, output, stdin)
    adopt_environment(launch, processes.raised(events))
    _shed_the_zygote()
    before, opened = frozenset(sys.modules), program_gpus.watch()
    channel.after_first_report(lambda: _tell_needs(before, opened()))
    _run_program(launch)


def _tell_needs(before: frozenset[str], gpus: tuple[int, ...]) -> None:
    """Report what the first step imported, and which GPUs it opened, so that a restart finds both done."""
    found = [name for name in preimport.LATER if name in sys.modules and name not in before]
    if found:
        channel.send({"kind": "imported", "modules": found}, patience=0)
    if gpus:
        channel.send({"kind": "gpus", "gpus": gpus}, patience=0)


def _shed_the_zygote() -> None:
    """Renew what a fork inherits and a fresh process has of its own; see also `randomness`."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:  # otherwise importing it creates a key
        multiprocessing.current_process().authkey = os.urandom(32)
    if sys.version_info < (3, 13):  # later versions do it themselves
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]


def settle(launch: Launch, output: int, stdin: int | None = None) -> None:
    """Give this process its own session, its input and output, and the signals of a fresh process."""
    os.setsid()
    processes.die_with_parent()
    if os.getppid() != launch.parent:
        os._exit(1)
    if launch.task.startswith("evaluator-"):
        os.nice(_NICE)
    task_input.connect(stdin)
    processes.redirect(output, output)
    for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(sig, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the zygote blocked signals that must not get lost
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def adopt_environment(launch: Launch, events: int) -> None:
    """Enter the task's folder and environment. `events` is its line to the agent."""
    os.environ.update(launch.env)
    os.environ["OARLOCK_FD"] = str(events)
    os.chdir(launch.cwd)


def _run_program(launch: Launch) -> NoReturn:
    process_title.show_task(launch.task, launch.program)
    faulthandler.enable()
    stack_dump.register()
    channel.open_line()
    correction.install()
    jax_cluster.install()
    loopback.install()
    eager_torch.install()
    task_input.install(launch.has_input)
    hooks.install()
    randomness.begin(launch.seed, launch.identity)
    program = launch.program
    code = 1
    try:
        if program.kind == "module":
            _run_module(program.target, program.args)
        else:
            _run_file(str(Path(launch.cwd) / program.target), program.args)
        code = 0
    except SystemExit as leaving:
        code = _exit_code(leaving)
    except BaseException as error:
        code = _explain(error, launch)
    _end(code)


def _run_file(path: str, args: list[str]) -> None:
    sys.argv = [path, *args]
    _put_first_on_path(Path(path).parent)
    # A real __main__: pickling, multiprocessing's spawn and `if __name__` all look there.
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = module
    code = compile(Path(path).read_bytes(), path, "exec")
    exec(code, module.__dict__)


def _run_module(name: str, args: list[str]) -> None:
    sys.argv = [name, *args]
    _put_first_on_path(Path.cwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _put_first_on_path(folder: Path) -> None:
    """Do what Python does: a `secrets.py` there is the program's `secrets`, even if another is loaded."""
    if getattr(sys.flags, "safe_path", False):
        return
    beside = {file.name.partition(".")[0] for file in folder.glob("*.py")}
    beside |= {package.parent.name for package in folder.glob("*/__init__.py")}
    if not beside.isdisjoint(getattr(sys, "stdlib_module_names", beside)):  # Python 3.9 has no such list
        preimport.import_oarlock()  # a library may use it later, and it needs Python's own modules
    sys.path.insert(0, str(folder))
    for name in list(sys.modules):
        if name.partition(".")[0] in beside - _ALWAYS_THERE and not _is_in(sys.modules[name], folder):
            del sys.modules[name]


def _is_in(module: types.ModuleType, folder: Path) -> bool:
    """Whether it is from that folder, or has no file: built-in modules come before any folder."""
    file = getattr(module, "__file__", None)
    return file is None or folder in Path(file).parents


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr, flush=True)
    return 1


def _explain(error: BaseException, launch: Launch) -> int:
    """Send the error to the agent before a peer notices, and show the traceback without Oarlock's frames."""
    trace = error.__traceback__
    while trace is not None and _is_plumbing(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    no_input = task_input.explained(error, launch.has_input)
    error = no_input or error
    channel.send(
        {
            "kind": "error",
            "type": type(error).__name__,
            "message": str(error)[:4000],
            "where": _where(error, trace, launch.cwd),
        }
    )
    if no_input is not None:
        print(f"oarlock: {no_input}", file=sys.stderr, flush=True)
        return 1
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except Exception:
        sys.__excepthook__(type(error), error, trace)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _is_plumbing(filename: str) -> bool:
    return filename.startswith((_AGENT_FOLDER, "<frozen ")) or filename.endswith("runpy.py")


def _where(error: BaseException, trace: types.TracebackType | None, folder: str) -> str | None:
    """file:line of the innermost frame in the user's own code. If there is none, of the innermost frame."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    innermost = users = None
    while trace is not None:
        innermost = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        if innermost.startswith(folder + os.sep) and "site-packages" not in innermost:
            users = innermost
        trace = trace.tb_next
    return users or innermost


def _end(code: int) -> NoReturn:
    """Do what the interpreter does at exit: a forked child must do that itself.

    After a failure under `jax.distributed`, its exit handler would wait 98 s for a dead peer.
    """
    channel.flush(has_failed=code != 0)
    if code == 0:
        channel.send({"kind": "gpus", "gpus": []}, patience=0)  # no process follows
    if code == 0 or not jax_cluster.is_connected():
        try:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        except BaseException as error:
            print(f"oarlock: at exit: {error_text(type(error).__name__, error)}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)
