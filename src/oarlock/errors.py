"""The exceptions of Oarlock; a caller sees those of the first two trees.

From the command line and `oarlock.Job`, `oarlock.Run`:

    OarlockError                any refusal; `exit_code` is the command line's
    ├── JobError                the job file, a flag or a Python argument is wrong: file:line, field, fix
    │   └── FieldError          one field of a job is wrong; has its path
    ├── UnknownRun              no run has that name
    ├── LaterRun                a later Oarlock wrote the run's record, in a way that this one cannot read
    ├── RunFailed               a run that was waited for did not succeed; has its state
    ├── RunRefusedError         the run, or its leading agent, refuses a request
    ├── Unanswered              a model server is lost before it answers; another one may answer
    ├── ApiError                the cluster's API server refuses a request or does not answer
    └── LoginError              the kubeconfig's login command fails

In a training program:

    Exception
    ├── FencedError             a later generation writes to the checkpoints now: this one must not
    └── NoInput                 the program reads input, and this task has none, or no more
    ValueError
    ├── ExportError             a model cannot be exported as it was given
    ├── KerasRefusedError       Keras is called in a way that would train wrongly on several workers
    └── MismatchError           a checkpoint does not fit the state that it is restored into

Inside Oarlock, where a caller never sees them:

    Exception
    ├── BrokenError             a source of data breaks off; the next attempt may succeed
    ├── CannotConvert           a model has no LiteRT form
    ├── CannotListen            a model server cannot have its address
    │   └── PortTaken           another process listens there
    ├── CannotServe             a model server cannot start, or has nothing left to serve
    ├── ChangedError            a file of a checkpoint is not what its manifest says
    ├── ClientGone              a connection ends before its request does
    ├── DamagedError            a checkpoint cannot be read, or is not whole
    ├── Detached                the user detaches from a run with Ctrl-C
    ├── FetchError              a source of data cannot be fetched
    │   └── StoppedError        it was stopped; the next attempt resumes
    ├── ModelError              a model cannot be loaded, or refuses an input; a client gets its text
    ├── NothingServes           no version of a model can be loaded
    ├── OverLimit               more of a program would travel than may
    ├── Overloaded              more requests wait for a model than its settings allow
    ├── OvertakenError          an upload is no longer useful: the run ends and there is a newer checkpoint
    ├── Refused                 a request to a model server is answered with this sentence
    ├── ScoreError              checkpoints cannot be scored, or the program that scores them fails
    ├── StoreUnreachableError   the store of snapshots does not answer for as long as the run can wait
    ├── UnreachableError        the leading agent does not answer
    └── WireError               a peer sends something that is not a message
        └── OtherVersionError   a peer is of another version
    ValueError
    ├── BadManifest             a folder holds no model, or its manifest is damaged
    ├── BadPredict              a predict.py cannot be used
    ├── ItemError               one entry of a list or mapping in a job is wrong
    ├── LaterVersion            data of a later version that this one cannot read
    └── NotJson                 JSON has no word for a value

Every message is for the person at the keyboard: what is wrong, where, what to do.
"""

from __future__ import annotations


class OarlockError(Exception):
    """Any refusal of Oarlock."""

    exit_code = 1


class JobError(OarlockError):
    """The job file, a flag or a Python argument is wrong."""

    exit_code = 2


class UnknownRun(OarlockError):
    """No run has that name."""

    exit_code = 2


class LaterRun(OarlockError):
    """A later Oarlock wrote the run's record, in a way that this one cannot read."""

    def __init__(self, run: str, why: object) -> None:
        super().__init__(
            f"run {run} was made by a later Oarlock ({why}): upgrade with `pip install -U oarlock`"
        )


class RunFailed(OarlockError):
    """A run that was waited for did not succeed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
