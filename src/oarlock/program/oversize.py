"""The message for a program's folder that is too large to travel. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.wording import printable

_WHAT_TO_DO = (
    "list what the program does not need in .oarlockignore, "
    "or keep data in a volume or a bucket (storage.data)"
)


def message(folder: str, sizes: Mapping[str, int]) -> str:
    """Name the size of the folder, its largest parts and what to do. `sizes` has the bytes of each file."""
    total = sum(sizes.values())
    biggest = largest_parts(sizes)
    width = max(len(_amount(size)) for _, size in biggest)
    return "\n".join(
        (
            f"the program's folder {printable(folder)} is {_amount(total)} in {len(sizes):,} "
            f"file{'s' * (len(sizes) != 1)}, more than 8 MiB even when compressed: at most that travels "
            "to a cluster",
            *(f"  {_amount(size):>{width}}  {printable(name)}" for name, size in biggest),
            _WHAT_TO_DO,
        )
    )


def largest_parts(sizes: Mapping[str, int], most: int = 5) -> list[tuple[str, int]]:
    """The largest files and folders; a folder is one line, unless three or fewer entries are most of it."""
    children: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        name = path
        while name:
            folder = name[: name.rstrip("/").rfind("/") + 1]
            inside = children.setdefault(folder, {})
            inside[name] = inside.get(name, 0) + size
            name = folder
    shown = dict(children.get("", {}))
    while True:
        top = sorted(shown.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
        for name, size in top:
            if name in children and sum(sorted(children[name].values())[-3:]) >= 0.8 * size:
                del shown[name]
                shown |= children[name]
                break
        else:
            # An entry below one percent does not help, unless there is nothing else.
            return [pair for pair in top if pair[1] * 100 >= sum(sizes.values())] or top


def _amount(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.0f} {unit}" if size >= 10 * scale else f"{size / scale:.1f} {unit}"
    return f"{size} B"
