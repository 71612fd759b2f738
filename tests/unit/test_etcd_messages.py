"""The bytes of etcd's messages, and of our keys and their values."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from holdfast.errors import BackendUnavailable
from holdfast.model import Label
from holdfast.stores.etcd import keys
from holdfast.stores.etcd.wire import codec, messages
from holdfast.stores.etcd.wire.messages import KeyValue


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**62, 2**63 - 1, -1, -(2**63)])
def test_numbers_come_back(number: int) -> None:
    message = codec.number(3, number) + codec.data(200, b"x" * 300) + codec.number(1, 7)
    found = dict(codec.fields(message))
    assert found.get(3, 0) == number
    assert found[200] == b"x" * 300
    assert found[1] == 7


def test_the_bytes_are_those_of_protocol_buffers() -> None:
    # As protoc encodes them.
    assert codec.number(1, 150) == b"\x08\x96\x01"
    assert codec.data(2, b"testing") == b"\x12\x07testing"
    assert codec.number(5, 0) == b""


def test_a_message_that_ends_too_soon_is_refused() -> None:
    with pytest.raises(BackendUnavailable, match="cannot be read"):
        list(codec.fields(b"\x12\x07test"))
    with pytest.raises(BackendUnavailable, match="cannot be read"):
        list(codec.fields(b"\x08\x96"))
    with pytest.raises(BackendUnavailable, match="cannot be read"):
        list(codec.fields(b"\x0b"))


def test_fields_of_other_kinds_are_passed_over() -> None:
    message = b"\x09" + b"\0" * 8 + b"\x15" + b"\0" * 4 + codec.number(3, 9)
    assert list(codec.fields(message)) == [(3, 9)]


def test_a_reply_is_read() -> None:
    header = (
        codec.number(1, 2**63 - 9) + codec.number(2, 77) + codec.number(3, 300) + codec.number(4, 2)
    )
    message = codec.data(1, header) + codec.number(2, 1) + codec.data(3, codec.data(2, b""))
    reply = messages.parse_txn(message)
    assert (reply.revision, reply.succeeded, reply.results) == (300, True, ([],))
    assert messages.parse_term(message) == 2
    assert messages.parse_deleted(message) == 1


def test_the_end_of_a_prefix() -> None:
    assert messages.after(b"/a/") == b"/a0"


@pytest.mark.parametrize("name", ["x", "a/b", "100%", "%2F", "日本語", "with space", "../../etc"])
def test_a_name_is_found_again_in_its_key(name: str) -> None:
    naming = keys.Naming("a/b")
    queue = naming.queue(name)
    label = Label("host", 7, "some words of mine")
    entry = keys.Entry(keys.GRANTED, "owner", 2, 30.0, 1.5, 0, label)
    key = naming.queue_of_kind(queue, "semaphore", 5) + b"0123.4"
    stored = naming.stored_entry(KeyValue(key, entry.encode(), 10, 12, 99))
    assert stored is not None
    assert (stored.name, stored.kind, stored.capacity) == (name, "semaphore", 5)
    assert stored.entry == entry
    assert stored.token(1000) == 1012
    moved = stored._replace(entry=entry.granted(2.0, token=1012))
    assert moved.token(1000) == 1012
    first, last = naming.queues(name)
    assert first <= key < last
    assert naming.wakeup_for(key) == naming.wakeup("0123")


def test_what_is_not_ours_is_left_alone() -> None:
    naming = keys.Naming("n")
    for key, value in (
        (b"x/lock.1/s.0", b"nonsense"),
        (b"x/lock.1", b""),
        (b"x/lock/s.0", b"granted o 1 30 1.5 0 7 host text"),
    ):
        assert naming.stored_entry(KeyValue(naming.root + b"lock/" + key, value, 1, 1, 0)) is None


def test_a_wake_up_says_which_owner_was_granted_the_lock_and_who_follows() -> None:
    naming = keys.Naming("n")
    queue = naming.queue_of_kind(naming.queue("x"), "lock", 1)
    stored = []
    for number in range(3):
        entry = keys.Entry(keys.WAITING, f"o{number}", 1, 30.0, 1.5, 0, Label("h", 1, "a b"))
        kv = KeyValue(queue + b"s.%d" % number, entry.encode(), 5 + number, 5 + number, 77)
        one = naming.stored_entry(kv)
        assert one is not None
        stored.append(one)
    followers = [keys.encode_follower(one) for one in stored[1:]]
    wakeup = keys.Wakeup("o0", queue + b"s.0", followers)
    assert keys.decode_wakeup(wakeup.encode()) == wakeup
    again = naming.stored_entries(map(keys.decode_follower, followers))
    assert [one.entry for one in again] == [one.entry for one in stored[1:]]
    assert [(one.kv.changed, one.kv.lease) for one in again] == [(6, 77), (7, 77)]


def test_noise_is_a_clean_error_or_a_reply() -> None:
    draw = random.Random(11)
    parsers = [
        messages.parse_txn,
        messages.parse_range,
        messages.parse_watched,
        messages.parse_lease,
        messages.parse_term,
        messages.parse_token,
        messages.parse_deleted,
        messages.parse_time_to_live,
    ]
    header = codec.data(1, codec.number(3, 7) + codec.number(4, 2))
    good = header + codec.number(2, 1) + codec.data(3, codec.data(1, codec.data(2, b"\n\1a")))
    for _ in range(20_000):
        message = bytearray(draw.choice((good, draw.randbytes(draw.randrange(20)))))
        if message:
            message[draw.randrange(len(message))] = draw.randrange(256)
        for parse in parsers:
            with suppress(BackendUnavailable):
                parse(bytes(message))
