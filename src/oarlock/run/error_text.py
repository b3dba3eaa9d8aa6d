"""An exception in words, as Python prints it. Pure; travels into pods."""

from __future__ import annotations


def error_text(kind: object, message: object) -> str:
    """`ValueError: too small`, or without a message just `AssertionError`."""
    text = "" if message is None else str(message).strip()
    name = str(kind or "error")
    return f"{name}: {text}" if text else name
