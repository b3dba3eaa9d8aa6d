"""Folders with ignore files, and what travels of them."""

from __future__ import annotations

from pathlib import Path

from oarlock.program import bundle

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary-4711\n"
CREDENTIALS = {
    **dict.fromkeys((".ssh/known_hosts", ".ssh/id_rsa", ".aws/credentials", ".azure/msal.json"), ""),
    **dict.fromkeys((".gnupg/private-keys-v1.d/x", ".kube/config", ".netrc", ".env", "sub/.env.local"), ""),
    **dict.fromkeys((".envrc", "id_ed25519", "id_rsa.pub", "certs/server.pem", "SERVER.PEM", "tls.key"), ""),
    **dict.fromkeys((".bash_history", ".python_history", ".oarlock/runs/r1/token", ".git-credentials"), ""),
    **dict.fromkeys((".pypirc", ".npmrc", ".docker/config.json", ".config/gcloud/credentials.db"), ""),
    **dict.fromkeys(("kaggle.json", "kubeconfig", "sub/deep/.aws/config", "deploy.p12"), ""),
    "deploy": KEY,
    "cloud.json": '{"type": "service_account", "private_key": "canary-4711"}',
    "sub/adc.json": '{"refresh_token": "canary-4711", "type":"authorized_user"}',
}


def write(folder: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def ignore(folder: Path, *lines: str, file: str = ".gitignore") -> None:
    write(folder, file, text="\n".join(lines) + "\n")


def packed(folder: Path) -> set[str]:
    """What travels, the ignore files apart."""
    files = bundle.pack(folder).files
    return {path for path in files if not path.endswith(("gitignore", "oarlockignore"))}


def write_credentials(folder: Path) -> None:
    for name, text in CREDENTIALS.items():
        write(folder, name, text=text or "canary-4711")
