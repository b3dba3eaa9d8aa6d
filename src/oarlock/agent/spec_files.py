"""The files and folders that a spec names, on the machine of an agent.

Standard library only; imports `protocol`.
"""

from __future__ import annotations

from pathlib import Path

from oarlock.agent.protocol.spec import Spec


def make_folders(spec: Spec) -> None:
    """Create the run's folders, except those that are URLs."""
    for folder in spec.folders.values():
        if "://" not in folder:
            Path(folder).mkdir(parents=True, exist_ok=True)


def read_token(spec: Spec) -> str:
    """Read the secret that all agents and clients of this run share."""
    return Path(spec.token).read_text().strip()


def publish_address(spec: Spec, port: int) -> None:
    """Write the address at which clients on this machine find the leading agent."""
    address = Path(spec.folder) / "address"
    draft = address.with_suffix(".part")
    draft.write_text(f"{spec.bind}:{port}\n")
    draft.replace(address)
