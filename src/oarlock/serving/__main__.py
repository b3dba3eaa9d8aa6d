"""`python -m oarlock.serving SETTINGS.json`: serve a model until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path

from oarlock.serving.server.supervisor import CannotServe, Supervisor
from oarlock.serving.settings import Settings


def main() -> int:
    """Serve. Returns the exit code: 1 if the model cannot be served, 2 for bad settings, else `stopped`."""
    if len(sys.argv) != 2:
        _say("expected one settings file: python -m oarlock.serving SETTINGS.json", sys.stderr)
        return 2
    file = Path(sys.argv[1])
    try:
        settings = Settings.from_json(file.read_text())
    except (OSError, ValueError) as problem:
        _say(f"{file}: {problem}", sys.stderr)
        return 2
    try:
        Supervisor(settings, file, _say).run()
    except CannotServe as problem:
        _say(str(problem), sys.stderr)
        return 1
    return settings.stopped


def _say(text: str, stream: object = None) -> None:
    print(text, file=stream or sys.stdout, flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
