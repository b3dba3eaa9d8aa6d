"""Random numbers as a function of the step: what a step draws does not depend on what was drawn before it.

So there is no random state to save, a resumed run draws what the uninterrupted one would have drawn, and
any number of workers may go on from a checkpoint. Keras' seed generators are variables and saved as such;
JAX programs fold the step into a key themselves.
"""

from __future__ import annotations

import hashlib
import random
import sys


def seed(base: int, step: int, rank: int) -> None:
    """Python's, NumPy's and torch's own generators, each rank's different from the others'."""
    digest = hashlib.blake2b(f"{base}/{step}/{rank}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(number & 0x7FFFFFFFFFFFFFFF)
