"""The exceptions a caller of Oarlock may meet.

    OarlockError               anything Oarlock says no to; `exit_code` is what the command line ends with
    ├── JobError               the job file, a flag or a Python argument is wrong: file:line, field, fix
    ├── UnknownRun             no run has that name
    ├── LaterRun               its record was written by a later Oarlock, in a way that this one does not know
    └── RunFailed              a run that was waited for did not succeed; carries its state

Every message is for the person at the keyboard: what is wrong, where, what to do.
"""

from __future__ import annotations


class OarlockError(Exception):
    exit_code = 1


class JobError(OarlockError):
    exit_code = 2


class UnknownRun(OarlockError):
    exit_code = 2


class LaterRun(OarlockError):
    def __init__(self, run: str, why: object) -> None:
        super().__init__(
            f"run {run} was made by a later Oarlock ({why}): upgrade with `pip install -U oarlock`"
        )


class RunFailed(OarlockError):
    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
