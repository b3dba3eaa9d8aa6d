"""How the command ends while threads are left that no exit waits for, as those that forward ports."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What C does at exit stands for OpenSSL, which would crash: it ends the process with 77.
ENDS = """
import atexit, ctypes, signal, sys, threading
from oarlock import cli
c = ctypes.CDLL(None)
c.__cxa_atexit(c._exit, ctypes.c_void_p(77), None)
atexit.register(print, "Python has ended")
sys.argv[1:] = ["no-such-verb"]
"""
THREAD = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
SIGNAL = """
def verbs():
    class Verbs:
        def main(self, **options):
            sys.exit(CODE)
    return Verbs()
cli.Verbs = verbs
"""
ENDINGS = {
    "a thread is left": (THREAD, 2),
    "none is left": ("", 77),
    "a signal ends it": (THREAD + SIGNAL.replace("CODE", "143"), 143),
    "a signal ends it without a word": (THREAD + SIGNAL.replace("CODE", ""), 0),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_no_handler_of_c_runs_beside_a_thread(how: str) -> None:
    more, code = ENDINGS[how]
    words = [sys.executable, "-c", ENDS + more + "cli.main()"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (code, "Python has ended\n"), done.stderr
