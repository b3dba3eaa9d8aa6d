"""Whether a name from outside stays inside the folder that it is relative to. Pure."""

from __future__ import annotations

_LONGEST_NAME, _LONGEST_PART, _DEEPEST = 1024, 255, 64  # bytes, bytes, folders


def stays_inside(name: str) -> bool:
    """Whether `name` is a plain relative path, with `/`, of something below its folder."""
    try:
        parts = name.encode("utf-8", "surrogateescape").split(b"/")
    except UnicodeEncodeError:  # no file system has such a name
        return False
    return (
        len(parts) <= _DEEPEST
        and len(b"/".join(parts)) <= _LONGEST_NAME
        and all(part not in (b"", b".", b"..") and len(part) <= _LONGEST_PART for part in parts)
        and "\0" not in name
    )


def leads_out(name: str, target: str) -> bool:
    """Whether a symbolic link called `name` may lead out of the folder that the name is relative to.

    `..` is accepted only at the start of `target`: after another link its meaning changes.
    """
    parts = target.split("/")
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    rest = "/".join(parts[ups:])
    is_plain = target == "." or stays_inside(rest) or (ups > 0 and not rest)
    return not stays_inside(name) or ups > name.count("/") or not is_plain
