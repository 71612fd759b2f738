"""Data that counts as a place in the queue and a wake-up behind it, without the parser."""

from __future__ import annotations

import pytest

from holdfast.stores.redis.wire.protocol import bulk
from holdfast.stores.redis.wire.wakeups import handed_token, wakeup_prefix

CHANNEL = bulk(b"holdfast:channel")
OWNER = "0123456789abcdef01234567"
TOKEN = 1_800_000_000_000_001
BEGINNING = wakeup_prefix(CHANNEL) + OWNER.encode()


def message(owner: str = OWNER, token: object = TOKEN) -> bytes:
    return b">3\r\n$7\r\nmessage\r\n" + CHANNEL + bulk(f"{owner} {token}".encode())


def test_both_and_nothing_else() -> None:
    assert handed_token(b":29999\r\n" + message(), BEGINNING) == TOKEN


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b":29999\r\n",
        message(),
        b":29999\r\n" + message()[:-1],
        b":29999\r\n" + message() + b":1\r\n",
        b":29999\r\n:1\r\n" + message(),
        b":29999\r\n" + message("f" * 24),
        b":29999\r\n" + message("f" * 24) + message(),
        b":29999\r\n" + message() + message(),
        b":29999\r\n" + message(token=0),
        b":29999\r\n" + message(token=17),
        b":29999\r\n" + message(token="x" * 16),
        b"-ERR no\r\n" + message(),
        b"$5\r\n12345\r\n" + message(),
    ],
)
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    assert handed_token(data, BEGINNING) == 0


def test_every_beginning_of_it_is_left_to_the_parser() -> None:
    whole = b":29999\r\n" + message()
    assert [handed_token(whole[:length], BEGINNING) for length in range(len(whole))] == [0] * len(
        whole
    )
