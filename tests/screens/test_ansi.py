"""What a terminal would finally show of a line."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from oarlock.screens.ansi import as_it_is, json_safe, resolve, rows, visible


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
        ("\x1b[1m\x1b[31mboth\x1b[m", "\x1b[1;31mboth\x1b[0m"),
        ("\x1b[31mone\rtwo\x1b[0m", "\x1b[31mtwo\x1b[0m"),
        ("\x1b[31mred\x1b[0m\rx", "x\x1b[31med\x1b[0m"),
        ("\x1b[38;5;208mo\x1b[2Jr\x1b[0m", "\x1b[38;5;208mor\x1b[0m"),
        ("\x1b[38:2::1:2:3;48;5;9mx", "\x1b[38;2;1;2;3;48;5;9mx\x1b[0m"),
        ("\x1b[1;3;31;102mx\x1b[22;39my", "\x1b[1;3;31;102mx\x1b[0m\x1b[3;102my\x1b[0m"),
        ("\x1b[38;2mx\x1b[38my\x1b[99999;?1mz\x1b[8mseen", "xyzseen"),
    ],
)
def test_colours_stay_with_their_characters(written: str, shown: str) -> None:
    assert resolve(written) == shown
    assert resolve(shown) == shown


@pytest.mark.parametrize(
    "unit",
    [
        "\x1b[31mx\x1b[39m",
        "\x1b[1mx",
        "\x1b[4096Cx",
        "\x1b[7mx\x1b[27m",
    ],
)
def test_a_hostile_line_stays_small(unit: str) -> None:
    """64 KiB, the longest line of a log, cost hundreds of megabytes."""
    line = "\x1b[1;2;3;4;5;7;9;38;2;255;255;255;48;2;255;255;255m" + unit * ((64 << 10) // len(unit))
    tracemalloc.start()
    shown = resolve(line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(shown) < 16 * len(line)
    assert peak < 128 * len(line)
    assert resolve(line, colours=False).count("x") > 0


@pytest.mark.parametrize(
    "unsafe", ["\x1b", "\x07", "\r", "\x7f", "\x9b", "\u200e", "\u202e", "\u2066", "\udc9b"]
)
def test_text_that_is_no_output_is_spelled_out(unsafe: str) -> None:
    spelled = unsafe.encode("unicode_escape").decode()
    assert visible(f"a{unsafe}b\té\n") == f"a{spelled}b\té\\n"
    assert visible(f"a{unsafe}b\n", lines=True) == f"a{spelled}b\n"
    assert json.loads(json_safe(json.dumps(f"é{unsafe}", ensure_ascii=False))) == f"é{unsafe}"
    assert unsafe not in json_safe(json.dumps(f"é{unsafe}", ensure_ascii=False))


@pytest.mark.parametrize("bidi", ["\u061c", "\u200f", "\u2028", "\u202a", "\u2069"])
def test_output_cannot_be_turned_around(bidi: str) -> None:
    assert resolve(f"a{bidi}b") == "ab"


def test_a_keras_progress_bar_ends_as_its_last_state() -> None:
    first = "\x1b[1m1/2\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━\x1b[0m \x1b[1m0s\x1b[0m loss: 2.5"
    last = "\x1b[1m2/2\x1b[0m \x1b[32m━━━━━━━━\x1b[0m \x1b[1m0s\x1b[0m loss: 1.5"
    erased = "\b" * 21
    assert resolve(f"\r{first}{erased}\r{last}", colours=False) == "2/2 ━━━━━━━━ 0s loss: 1.5"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain", ["plain"]),
        ("\r 1%\r 2%Traceback (most recent call last):", [" 2%", "Traceback (most recent call last):"]),
        ("\x1b[2K 2%Traceback (most recent call last):", [" 2%", "Traceback (most recent call last):"]),
        ("[rank0]: Traceback (most recent call last):", ["[rank0]: Traceback (most recent call last):"]),
        ("\rTraceback (most recent call last): as text", ["Traceback (most recent call last): as text"]),
        ("\r 1%\r 2%\r [line continues]", []),  # the next line shows a later state
        ("long [line continues]", ["long [line continues]"]),
    ],
)
def test_rows_of_a_line(written: str, shown: list[str]) -> None:
    assert rows(written) == shown


@pytest.mark.parametrize("text", ["", "a\tb\nc", "é ✓\n█"])
def test_lines_that_need_no_change_stay_together(text: str) -> None:
    assert as_it_is(text.encode()) == text


@pytest.mark.parametrize("text", ["a\rb", "\x1b[1m", "\x7f", "a\0", "é\r", "é\n\x1b", "\u202e", "\x9b"])
def test_lines_that_need_a_change_do_not(text: str) -> None:
    assert as_it_is(text.encode()) is None
