"""`oarlock`, or `python -m oarlock`: the command line (`cli`).

A run on this machine begins with its agent, before the command line is imported: an agent and its zygote need
as long to start as a client needs to read the job.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

# Whoever writes one of these may start no agent here. (A program's own argument only costs the head start.)
_OTHERWISE = ("--on", "--resume", "--dry-run", "--help")


def main() -> NoReturn:
    """Run the console script."""
    gc.set_threshold(100_000)  # its imports make no garbage: looking for some takes 5 of 100 ms
    try:
        if sys.argv[1:2] == ["run"] and not any(word.startswith(_OTHERWISE) for word in sys.argv):
            from oarlock.engines import agent_process

            agent_process.expect()
        from oarlock import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
