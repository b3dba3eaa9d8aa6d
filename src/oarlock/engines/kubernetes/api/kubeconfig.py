"""The user's kubeconfig and the context in it, or one line that says what is wrong with it."""

from __future__ import annotations

import warnings

from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from oarlock.errors import OarlockError


def load(context: str | None) -> SingleConfig:
    """Read the kubeconfig for a context, or for the current one. Raises OarlockError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = KubeConfig.from_env()
            if context is not None and context not in found.contexts:
                known = ", ".join(sorted(found.contexts)) or "none"
                raise OarlockError(f"the kubeconfig has no context {context}; it has {known}")
            config = found.get(context)
    except (ConfigError, OSError, ValueError, KeyError, TypeError) as problem:
        why = str(problem).strip() or type(problem).__name__
        raise OarlockError(f"no cluster to talk to: {why}; KUBECONFIG names the file to use") from None
    if config is None:
        raise OarlockError("the kubeconfig has no current context; choose one with --context")
    return config
