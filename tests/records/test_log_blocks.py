"""Lines of a log in blocks of the same time: the same lines, in the same order."""

from __future__ import annotations

import pytest

from oarlock.records.log_blocks import Block, split


@pytest.mark.parametrize(
    ("data", "blocks"),
    [
        (b"", []),
        (b"t1 a\n", [("t1", b"a")]),
        (b"t1 a\nt1 b\nt1 \nt2 c\n", [("t1", b"a\nb\n"), ("t2", b"c")]),
        (b"t1 t1 t1\nt1 t1\n", [("t1", b"t1 t1\nt1")]),
        (b"t1 a\nt2 b\nt1 c\n", [("t1", b"a"), ("t2", b"b"), ("t1", b"c")]),
        (b"t1 a\nt1 b\nt2 c\nt1 d\n", [("t1", b"a"), ("t1", b"b"), ("t2", b"c"), ("t1", b"d")]),
        (b"t1 a\nt11 b\n", [("t1", b"a"), ("t11", b"b")]),
        (b"damaged\nt1 a\n\n", [("damaged", b""), ("t1", b"a"), ("", b"")]),
        (b"t1 \xff\n", [("t1", b"\xff")]),
    ],
)
def test_lines_with_the_same_time_stay_together(data: bytes, blocks: list[tuple[str, bytes]]) -> None:
    assert [(block.time, block.data) for block in split(data, 1, "worker-0")] == blocks


def test_many_lines_are_few_blocks_and_none_is_lost() -> None:
    data = b"".join(b"t%d line %d\n" % (number // 1000, number) for number in range(50_000))
    blocks = [*split(data, 1, "worker-0")]
    assert len(blocks) == 50
    lines = [line.text for block in blocks for line in block.lines()]
    assert lines == [f"line {number}" for number in range(50_000)]


def test_a_line_that_is_no_text_is_shown_all_the_same() -> None:
    (line,) = Block("t", 1, "worker-0", b"\xffa").lines()
    assert line.text == "\ufffda"
