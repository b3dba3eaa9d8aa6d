"""How the zygote forks."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent


def test_a_stop_that_comes_right_after_the_fork_is_not_lost() -> None:
    """Before it has settled a task ignores signals, as the zygote does."""
    code = """
        import os, signal, socket
        from oarlock.agent.protocol.spec import Program
        from oarlock.agent.zygote import gpu_standby, runner, zygote
        from oarlock.agent.zygote.orders import Launch, Ready
        from oarlock.system import fd_frames

        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        settle = runner.settle
        def stopped_before(*words):
            os.kill(os.getpid(), signal.SIGTERM)
            settle(*words)
        runner.settle = stopped_before
        agent, line = socket.socketpair()
        program = Program("program", "program.py")
        launch = Launch("worker-0", os.getpid(), "/", program, None, "worker-0", {})
        forks = zygote._Zygote(fd_frames.FrameSocket(line), Ready(warm=True), gpu_standby.Standbys())
        forks._launch(launch, os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_WRONLY))
        [pid] = forks.alive
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
