"""How fast a GPU is at best: dense bf16 operations per second, by the name that its driver reports. Pure.

The figures are from the makers' data sheets, without sparsity, at float32 accumulation; float16 if a GPU has
no bf16 (T4, V100). A MIG slice has no figure: its share differs by model.
"""

from __future__ import annotations

import re

_TERA = 1e12
# The first match counts: a longer name comes before its own prefix.
_PEAKS: tuple[tuple[str, float], ...] = (
    (r"\bB200\b", 2250),
    (r"\bH200 NVL\b", 835),
    (r"\b[HG]H200\b|\bH200\b", 989),
    (r"\bH100 NVL\b", 835),
    (r"\bH100 PCIe\b", 756),
    (r"\bH[18]00\b", 989),
    (r"\bH20\b", 148),
    (r"\bA[18]00\b", 312),
    (r"\bA40\b", 150),
    (r"\bA30\b", 165),
    (r"\bA10G\b", 70),
    (r"\bA10\b", 125),
    (r"\bL40S\b", 362),
    (r"\bL40\b", 181),
    (r"\bL4\b", 121),
    (r"\bV100-PCIE\b", 112),
    (r"\bV100\b", 125),
    (r"\bT4\b", 65),
    (r"\bRTX 6000 Ada\b", 364),
    (r"\bRTX 5090\b", 209),
    (r"\bRTX 4090\b", 165),
    (r"\bRTX 3090\b", 71),
    (r"\bMI3(00|25)X\b", 1307),
    (r"\bMI250X\b", 191.5),  # one of its two halves: each is a device of its own
)


def peak_of(name: str) -> float | None:
    """Return the operations per second of a GPU of that name; None if it is not in the table."""
    if re.search(r"\bMIG\b", name):
        return None
    return next((peak * _TERA for pattern, peak in _PEAKS if re.search(pattern, name, re.IGNORECASE)), None)
