"""A log keeps the newest lines up to its limit, however many arrive at once."""

from __future__ import annotations

from pathlib import Path

from oarlock.agent.record import log_segments
from oarlock.agent.record.log_segments import Logs

LIMIT = 64 * 1024


def written(folder: Path, *pieces: bytes) -> list[bytes]:
    """What each segment holds in the end."""
    log = Logs(folder, LIMIT).open(1, "worker-0")
    for piece in pieces:
        log.append(piece)
    log.close()
    return [segment.path.read_bytes() for segment in log_segments.of(folder / "1" / "worker-0.log")]


def test_much_output_at_once_leaves_most_of_the_limit(tmp_path: Path) -> None:
    lines = [b"%08d\n" % number for number in range(100_000)]
    segments = written(tmp_path, b"".join(lines), b"the last\n")
    kept = b"".join(segments)
    assert LIMIT // 2 < len(kept) <= LIMIT + LIMIT // 8
    assert kept.endswith(b"".join(lines[-1000:]) + b"the last\n")
    assert all(segment.endswith(b"\n") for segment in segments)


def test_a_line_that_is_longer_than_a_segment_stays_whole(tmp_path: Path) -> None:
    text = b"before\n" + b"x" * (LIMIT // 4) + b"\nafter\n"
    assert b"".join(written(tmp_path, text)) == text
