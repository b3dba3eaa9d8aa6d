"""What is sent of a text: whole characters, and nothing of a stop string."""

from __future__ import annotations

import pytest

from oarlock.serving.generation.text_stream import TextStream


def fed(stops: tuple[str, ...], *pieces: bytes) -> list[str]:
    stream = TextStream(stops)
    return [*map(stream.feed, pieces), stream.rest()]


def test_a_character_that_is_split_over_tokens_comes_when_it_is_whole() -> None:
    euro, smile = "€".encode(), "🙂".encode()
    pieces = [bytes([byte]) for byte in b"a" + euro + smile]
    assert fed((), *pieces) == ["a", "", "", "€", "", "", "", "🙂", ""]
    assert fed((), euro[:2], euro[2:] + b"b") == ["", "€b", ""]


def test_half_a_character_at_the_end_is_left_out() -> None:
    assert fed((), b"a", "€".encode()[:2]) == ["a", "", ""]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert "".join(fed((), b"a\xff", b"b\xe2", b"c")) == "a\ufffdb\ufffdc"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b"one\n", b"\ntwo"], "one"),
        ([b"one\n\ntwo"], "one"),
        ([b"one", b"\n", b"two\n", b"\n"], "one\ntwo"),
        ([b"one", b"\n"], "one\n"),
        ([b"\n\n"], ""),
    ],
)
def test_a_stop_string_is_found_across_tokens(pieces: list[bytes], text: str) -> None:
    assert "".join(fed(("\n\n",), *pieces)) == text


def test_what_may_become_a_stop_string_waits() -> None:
    assert fed(("END",), b"a", b"E", b"N", b"x", b"E") == ["a", "", "", "ENx", "", "E"]


def test_a_stop_string_of_split_characters() -> None:
    stream = TextStream(("€!",))
    assert [stream.feed(bytes([byte])) for byte in "a€!b".encode()][:5] == ["a", "", "", "", ""]
    assert stream.is_stopped


def test_the_first_of_several_stop_strings_counts() -> None:
    stream = TextStream(("world", "o w"))
    assert stream.feed(b"hello world") == "hell"
    assert stream.is_stopped


def test_a_stop_string_that_begins_inside_of_another_beginning() -> None:
    assert "".join(fed(("aab",), b"a", b"a", b"a", b"b")) == "a"
