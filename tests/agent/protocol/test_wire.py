from __future__ import annotations

import json
import random
import struct
import zlib
from typing import Any

import pytest

from oarlock.agent.protocol import wire
from oarlock.agent.protocol.wire import Seal, Unpacker, WireError, pack, sealed


def test_messages_come_out_as_they_went_in_however_the_bytes_arrive() -> None:
    messages: list[dict[str, Any]] = [{"a": 1}, {}, {"text": "ü" * 100}, {"b": [1, None, {"c": True}]}]
    stream = b"".join(map(pack, messages))
    for size in (1, 2, 3, 7, 1000):
        unpacker = Unpacker()
        got = [one for at in range(0, len(stream), size) for one in unpacker.feed(stream[at : at + size])]
        assert got == messages


def test_a_large_message_is_packed() -> None:
    message = {"addresses": {f"worker-{index}": f"10.0.0.1:{index}" for index in range(2000)}}
    frame = pack(message)
    assert len(frame) < len(json.dumps(message)) / 3
    member = Unpacker()
    member.limit = wire.MEMBER_LIMIT
    assert list(member.feed(frame)) == [message]


@pytest.mark.parametrize(
    "bytes_",
    [
        struct.pack("!I", 5000),  # more than a stranger may say
        struct.pack("!I", 0x7FFFFFFF),
        struct.pack("!I", 3) + b"{{{",
        struct.pack("!I", 2) + b"[]",
        struct.pack("!I", 4) + b"null",
        struct.pack("!I", 2) + b"\xff\xfe",
        struct.pack("!I", 0),
        struct.pack("!I", 4000) + b"[" * 4000,
        struct.pack("!I", 4 | 1 << 31) + b"abcd",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_our_protocol_is_refused(bytes_: bytes) -> None:
    with pytest.raises(WireError):
        list(Unpacker().feed(bytes_))


def test_a_bomb_does_not_unpack() -> None:
    bomb = zlib.compress(b'{"a":"' + b"x" * 100_000_000 + b'"}', 9)
    unpacker = Unpacker()
    unpacker.limit = wire.MEMBER_LIMIT
    with pytest.raises(WireError, match="too long"):
        list(unpacker.feed(struct.pack("!I", len(bomb) | 1 << 31) + bomb))


def test_random_bytes_only_ever_raise_wire_errors() -> None:
    chance = random.Random(0)
    for _ in range(3000):
        frame = bytearray(pack({"hello": {"name": "x"}, "nonce": "n", "list": [1, 2, 3]}))
        for _ in range(chance.randrange(1, 6)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        try:
            list(Unpacker().feed(bytes(frame)))
        except WireError:
            pass


def heard(key: bytes, stream: bytes) -> list[wire.Message]:
    unpacker = Unpacker()
    unpacker.seal = Seal(key)
    return list(unpacker.feed(stream))


def test_a_sealed_frame_holds_for_one_token_one_pair_of_nonces_one_direction_and_one_place() -> None:
    keys = wire.session("token", "n1", "n2")
    seal = Seal(keys.agent)
    first, second = (sealed(pack({"number": number}), seal) for number in (1, 2))
    assert heard(keys.agent, first + second) == [{"number": 1}, {"number": 2}]
    for other in (
        keys.coordinator,
        wire.session("other", "n1", "n2").agent,
        wire.session("token", "n3", "n2").agent,
        wire.session("token", "n1", "n3").agent,
        wire.greeting_key("token", "n1"),
    ):
        with pytest.raises(WireError, match="seal"):
            heard(other, first)
    for wrong in (second, first + first, first[:-1] + bytes([first[-1] ^ 1]), first[:6] + b"x" + first[7:]):
        with pytest.raises(WireError, match="seal"):
            heard(keys.agent, wrong)
    changed_flag = bytes([first[0] | 0x80]) + first[1:]
    with pytest.raises(WireError, match="seal"):
        heard(keys.agent, changed_flag)


@pytest.mark.parametrize("version", [1, 3, 999_999_999])
def test_a_greeting_of_another_version_is_known_as_such_whatever_its_seal(version: int) -> None:
    told = (
        {"version": version, "later": "differs"} if version > 1 else {"hello": {}, "nonce": "n", "proof": "p"}
    )
    for seal in (b"", bytes(16), bytes(64)):
        with pytest.raises(wire.OtherVersionError, match=f"version {version} of .* this one 2: start all"):
            heard(wire.greeting_key("token", "n1"), pack(told) + seal)


def test_a_number_of_ten_thousand_digits_is_none() -> None:
    frame = b'{"born":1' + b"0" * 3000 + b"}"
    with pytest.raises(WireError, match="JSON"):
        list(Unpacker().feed(struct.pack("!I", len(frame)) + frame))
