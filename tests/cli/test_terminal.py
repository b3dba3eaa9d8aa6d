"""What a terminal would finally show of a line."""

from __future__ import annotations

import pytest

from oarlock.cli.terminal import resolve


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain\ttext with ünïcode", "plain\ttext with ünïcode"),
        ("0%\r50%\r100%", "100%"),
        ("100%\r50%", "50%%"),  # as a terminal does: what is not drawn over stays
        ("a windows line\r", "a windows line"),
        ("12\b\b34", "34"),
        ("\b\bx", "x"),
        ("long line\r\x1b[Kshort", "short"),
        ("long line\x1b[2K\rshort", "short"),
        ("keep\x1b[1K\rx", "x   "),
        ("abc\x1b[2DX", "aXc"),
        ("\x1b[5Gx", "    x"),
        ("\x1b[2Cx", "  x"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended", ""),
        ("\x1b(Btext\x1b7", "text"),
        ("bell\x07 and nul\x00", "bell and nul"),
        ("c1 \x9b31mred", "c1 31mred"),
        ("\x1b[?25lhidden\x1b[?25h", "hidden"),
        ("\x1b[999999999999Cx", " " * 4096 + "x"),
        ("\x1b", ""),
        ("", ""),
    ],
)
def test_without_colours(written: str, shown: str) -> None:
    assert resolve(f"{written}", colours=False) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mred\x1b[0m plain", "\x1b[31mred\x1b[0m plain"),
        ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
        ("\x1b[1m\x1b[31mboth\x1b[m", "\x1b[1m\x1b[31mboth\x1b[0m"),
        ("\x1b[31mone\rtwo\x1b[0m", "\x1b[31mtwo\x1b[0m"),
        ("\x1b[31mred\x1b[0m\rx", "x\x1b[31med\x1b[0m"),
        ("\x1b[38;5;208mo\x1b[2Jr\x1b[0m", "\x1b[38;5;208mor\x1b[0m"),
    ],
)
def test_colours_stay_with_their_characters(written: str, shown: str) -> None:
    assert resolve(written) == shown
    assert resolve(shown) == shown


def test_a_keras_progress_bar_ends_as_its_last_state() -> None:
    first = "\x1b[1m1/2\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━\x1b[0m \x1b[1m0s\x1b[0m loss: 2.5"
    last = "\x1b[1m2/2\x1b[0m \x1b[32m━━━━━━━━\x1b[0m \x1b[1m0s\x1b[0m loss: 1.5"
    erased = "\b" * 21
    assert resolve(f"\r{first}{erased}\r{last}", colours=False) == "2/2 ━━━━━━━━ 0s loss: 1.5"
