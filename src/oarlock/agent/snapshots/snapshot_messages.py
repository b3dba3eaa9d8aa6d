"""Messages between the leading agent and its uploader and downloader, in lines of JSON. Pure.

Orders go to the standard input of the process; its lines come from its standard output.
"""

from __future__ import annotations

from typing import Union

from oarlock.run.message_kinds import MessageKinds
from oarlock.run.quick_dataclass import dataclass

# Orders


@dataclass(frozen=True)
class Upload:
    """The uploader's first order: copy this run's checkpoints from the folder to the URL as they appear."""

    url: str
    run: str
    checkpoints: str  # the folder
    model: str  # the folder, or a URL that needs no upload
    owner: str  # distinguishes this machine's uploads from those of another run of the same name


@dataclass(frozen=True)
class FinishUploads:
    """The run is over: upload the newest checkpoint, and the model if the run succeeded, then end."""

    has_model: bool


@dataclass(frozen=True)
class Download:
    """The downloader's only order: fetch the newest snapshot if it is newer than the checkpoints in the
    folder, or the snapshots to score."""

    url: str
    run: str
    checkpoints: str
    patience: float  # how many seconds to wait for an answer
    is_new: bool = False  # the run's name was just generated: there can be no snapshots of it
    wanted: str = ""  # which ones to score: newest, all, or the number of a step


@dataclass(frozen=True)
class Begin:
    """The only order of the process that fetches the weights with which a new run starts."""

    place: str  # a folder or URL that holds checkpoints; @STEP picks one, the default is the newest
    run: str
    checkpoints: str  # the new run's folder
    patience: float  # how many seconds to wait for an answer


Order = Union[Upload, FinishUploads, Download, Begin]
ORDERS: MessageKinds[Order] = MessageKinds(
    {"upload": Upload, "finish": FinishUploads, "download": Download, "begin": Begin}
)

# Lines of both processes


@dataclass(frozen=True)
class Note:
    """One line for the run's record."""

    text: str


# Lines of the uploader


@dataclass(frozen=True)
class Reachable:
    """Whether the last attempt to use the store succeeded."""

    is_reachable: bool


@dataclass(frozen=True)
class UploadedPart:
    """Another part of a snapshot got through."""

    name: str


@dataclass(frozen=True)
class Uploaded:
    """A snapshot is complete."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Left:
    """The answer to FinishUploads: what is left to upload."""

    names: list[str]


# Lines of the downloader


@dataclass(frozen=True)
class Downloaded:
    """A snapshot of this run is in the checkpoints folder."""

    generation: int


@dataclass(frozen=True)
class Failed:
    """It is unknown whether there are snapshots, so the run must not start."""

    reason: str


@dataclass(frozen=True)
class MissingPackage:
    """obstore is not installed here."""

    needed_by: str = "storage.snapshots"  # the field in the job

    def reason(self, is_client_here: bool) -> str:
        """Why there are no snapshots, and what to do."""
        fix = "pip install 'oarlock[storage]'" if is_client_here else "add `pip: [obstore]` to the job"
        return f"{self.needed_by} needs obstore, which is not installed here: {fix}"


Line = Union[Note, Reachable, UploadedPart, Uploaded, Left, Downloaded, Failed, MissingPackage]
LINES: MessageKinds[Line] = MessageKinds(
    {
        "note": Note,
        "reachable": Reachable,
        "part": UploadedPart,
        "uploaded": Uploaded,
        "left": Left,
        "downloaded": Downloaded,
        "failed": Failed,
        "missing_package": MissingPackage,
    }
)
