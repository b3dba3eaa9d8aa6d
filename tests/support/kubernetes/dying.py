"""`oarlock`, killed after so many calls of the API: python dying.py CALLS WORDS...

Who deletes looks again and again until all is gone, as often as a slow cluster makes it: those do not count.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from oarlock.cli import main
from oarlock.engines.kubernetes.api.client import Api

_left = int(sys.argv.pop(1))
_send = Api.send
_looks: set[str] = set()


def _dying(self: Api, *words: Any, **named: Any) -> Any:
    global _left
    look = repr((words, named))
    if sys.argv[1] == "delete" and words[0] == "GET" and look in _looks:
        return _send(self, *words, **named)
    _looks.add(look)
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    _left -= 1
    return _send(self, *words, **named)


Api.send = _dying  # type: ignore[method-assign]
main()
