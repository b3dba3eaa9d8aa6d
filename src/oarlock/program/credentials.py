"""Files that hold credentials, by their name or their content. Pure.

They do not travel unless .oarlockignore names them: every user who may read the namespace can read
what travels.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

# Folders whose whole content counts. A part after a `/` is below the part before it.
_FOLDERS = (
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".oarlock", ".env*", ".kaggle", ".huggingface"),
    *(".config/gcloud", ".config/gh", ".config/rclone"),
)
_FILES = (
    *(".env*", ".netrc", "_netrc", ".git-credentials", ".pypirc", ".npmrc", ".pgpass", ".my.cnf", ".boto"),
    *(".s3cfg", ".dockercfg", ".docker/config.json", ".cargo/credentials*", ".vault-token", "kaggle.json"),
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".oarlock", "kubeconfig", "*.kubeconfig"),
    *("id_*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.ppk", "*_history"),
)
_LARGEST = 1 << 16  # bytes; a key is smaller
_PRIVATE_KEY = re.compile(rb"\s*(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----|PuTTY-User-Key-File-)")
_CLOUD_KEY = re.compile(rb'"type"\s*:\s*"(service_account|authorized_user|external_account)"')


def is_credential(path: str, is_folder: bool) -> bool:
    """Whether a name suggests credentials. Python files are the program itself: `id_tables.py` does not."""
    path = path.lower()
    if path.endswith(".py") and not is_folder:
        return False
    return any(_matches(path, pattern) for pattern in (_FOLDERS if is_folder else _FILES))


def is_key(path: str, content: bytes) -> bool:
    """Whether the content is a private key, under any name, or a cloud's key as JSON."""
    if len(content) > _LARGEST:
        return False
    is_cloud_key = path.lower().endswith(".json") and _CLOUD_KEY.search(content) is not None
    return is_cloud_key or _PRIVATE_KEY.match(content) is not None


def _matches(path: str, pattern: str) -> bool:
    count = pattern.count("/") + 1
    return fnmatchcase("/".join(path.split("/")[-count:]), pattern)
