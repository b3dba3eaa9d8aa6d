"""Prints lines of 100 bytes as quickly as it can: `wordy.py MEGABYTES`."""

from __future__ import annotations

import sys

_LINE = "x" * 90
for number in range(int(sys.argv[1]) * 10_000):
    print(f"{number:8} {_LINE}")
