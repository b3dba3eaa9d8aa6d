"""Where things are inside a pod, whatever it runs. Pure."""

from __future__ import annotations

ROOT = "/oarlock"
CODE = f"{ROOT}/code"  # what the client sent
SECRET = f"{ROOT}/secret"
WORK = f"{ROOT}/work"  # the pod's own
STORE = f"{ROOT}/store"  # the claim
MODEL = f"{WORK}/model"  # a model from a client, unpacked
