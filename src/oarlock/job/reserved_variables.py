"""The environment variables that Oarlock sets for each task, which a job may not set. Pure."""

from __future__ import annotations

from oarlock.run.contract import FOLDER_VARIABLES

# The contract of every task: a user's value would give all tasks the same rank.
_CONTRACT = {"TF_CONFIG", "CLUSTER_CONFIG", "POD_NAME", "MASTER_ADDR", "MASTER_PORT", "ROLE_NAME"} | {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID"),
}
# The variables with folders, and the fields of `storage` that choose them.
FOLDERS = {variable: kind for kind, variable in FOLDER_VARIABLES.items() if kind != "sources"}


def refused_variable(name: str) -> str | None:
    """Say why a user may not set a variable; None if they may."""
    if name in FOLDERS:
        return f"Oarlock sets it; use storage.{FOLDERS[name]}"
    if name in (*_CONTRACT, FOLDER_VARIABLES["sources"]) or name.startswith(("OARLOCK_", "TORCHELASTIC_")):
        return "Oarlock sets it for each task; leave it out"
    return None
