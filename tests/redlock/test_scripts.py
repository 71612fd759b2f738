"""Single rules of the protocol, on the scripts as they are, in a real server."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hiredis import Reader

from holdfast.chaos.servers.errors import ServerError
from holdfast.stores.redis.wire.protocol import bulk, pack
from holdfast.stores.redlock.commands import (
    MARKED,
    UNMARKED,
    Renewal,
)
from redlock.node import LOCK, QUEUE, RUN_ID, VOTE, LockTerms, Node


def test_a_hold_answers_the_value_at_which_it_began_again_and_again() -> None:
    node = Node()
    assert node.take("one") == 101
    assert node.take("one") == 101
    left, _, holder = node.take("two")
    assert (left, holder) == (-1, b"one")
    assert node.free("two", UNMARKED) == 0
    assert node.free("one", UNMARKED) == 1
    assert node.take("two") == 102


def test_phase_2_wants_the_very_hold_and_not_only_its_owner() -> None:
    node = Node()
    begin = node.take("one", ttl=0.02)
    node.ends()
    again = node.take("one")  # the request arrived a second time: another hold of the same owner
    assert again > begin
    assert node.raise_("one", begin, 500) == 0
    assert node.raise_("two", again, 500) == 0
    assert node.raise_("one", again, 500) == 1
    node.free("one", UNMARKED)
    assert node.take("two") == 501


def test_a_request_that_comes_after_its_clean_up_is_refused() -> None:
    node = Node()
    assert node.free("one", MARKED) == 0
    with pytest.raises(ServerError, match=r"^HFLEFT "):
        node.take("one")
    assert node.take("two") == 101


def test_a_hold_is_dated_when_it_is_first_renewed_and_shown_so_before() -> None:
    node = Node()

    def since() -> int:
        (found,) = node.ask(node.commands.inspect(["x"]))
        return int(found[0].split(b"\x1f")[4])

    def now() -> int:
        seconds, micros = node.server("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    before = now()
    begin = node.take("one", ttl=600.0)
    assert before - 2000 <= since() <= now() + 2000
    node.server("PEXPIRE", "holdfast:{x}", 590_000)  # ten seconds later
    shown = since()
    assert before - 10_002_000 <= shown <= now() - 9_998_000
    assert node.ask(node.commands.renew(VOTE, [Renewal("x", bulk(b"one"), begin, 600.0)])) == [1]
    assert node.server("PTTL", "holdfast:{x}") > 595_000
    assert abs(since() - shown) <= 1_000_000
    kept = since()
    assert node.ask(node.commands.renew(VOTE, [Renewal("x", bulk(b"one"), begin, 900.0)])) == [1]
    assert since() == kept


def test_several_requests_in_one_command_are_as_if_each_came_alone() -> None:
    node = Node()
    prefixes = node.commands.prefixes_for(LockTerms(30.0))
    other = node.commands.any_prefixes("y")

    def take(*wanted: tuple[Any, str], vote: bytes = VOTE) -> Any:
        keys = [one.request_keys for one, _ in wanted]
        asked = [one.request + bulk(owner.encode()) for one, owner in wanted]
        return node.ask(node.commands.take_batch.pack(keys, asked, vote))

    def free(*held: tuple[Any, str]) -> Any:
        keys = [one.lock for one, _ in held]
        return node.ask(
            node.commands.release_batch.pack(keys, [bulk(owner.encode()) for _, owner in held], b"")
        )

    first, second, third, again = take(
        (prefixes, "a"), (other, "b"), (prefixes, "c"), (prefixes, "a")
    )
    assert (first, second, again) == (101, 101, 101)
    assert (third[0], third[2]) == (-1, b"a")
    assert free((prefixes, "c"), (other, "b"), (prefixes, "a")) == [0, 1, 1]
    assert node.free("left", MARKED) == 0
    refused, granted = take((prefixes, "left"), (prefixes, "d"))
    assert isinstance(refused, Exception)
    assert str(refused).startswith("HFLEFT")
    assert granted == 102
    with pytest.raises(Exception, match="HFOUT"):
        take((prefixes, "e"), (other, "f"), vote=bulk(RUN_ID + b".2"))
    assert node.server("EXISTS", "holdfast:{y}") == 0


def test_asked_again_a_hold_lasts_longer_and_never_shorter() -> None:
    node = Node()
    begin = node.take("one", ttl=5.0)
    assert node.take("one", ttl=60.0) == begin
    assert node.server("PTTL", LOCK) > 30_000
    assert node.take("one", ttl=5.0) == begin
    assert node.server("PTTL", LOCK) > 30_000


def test_asked_again_a_hold_answers_its_beginning_and_not_the_counter() -> None:
    node = Node()
    assert node.take("one") == 101
    assert node.raise_("one", 101, 500) == 1
    assert node.take("one") == 101


def test_phase_2_keeps_the_ttl_and_does_not_lower_a_counter() -> None:
    node = Node()
    begin = node.take("one", ttl=60.0)
    assert node.raise_("one", begin, 500) == 1
    assert 30_000 < node.server("PTTL", LOCK) <= 60_000
    assert node.raise_("one", begin, 400) == 1
    node.free("one", UNMARKED)
    assert node.take("two") == 501


def test_a_renewal_is_for_the_very_hold_and_never_shortens() -> None:
    node = Node()
    begin = node.take("one", ttl=30.0)

    def kept(owner: str, value: int, ttl: float) -> Any:
        mine = bulk(owner.encode())
        holds = [Renewal("x", mine, value, ttl), Renewal("y", mine, 1, ttl)]
        return node.ask(node.commands.renew(VOTE, holds))

    assert kept("one", begin, 60.0) == [1, 0]
    assert node.server("PTTL", LOCK) > 30_000
    assert kept("one", begin, 5.0) == [1, 0]
    assert node.server("PTTL", LOCK) > 30_000
    assert kept("one", begin - 1, 60.0) == [0, 0]
    assert kept("two", begin, 60.0) == [0, 0]
    assert node.server("EXISTS", "holdfast:{y}") == 0


def test_only_its_owner_gives_a_hold_back() -> None:
    node = Node()
    node.take("one")
    assert node.free("two", UNMARKED) == 0
    assert node.free("two", MARKED) == 0
    assert node.server("EXISTS", LOCK) == 1


def test_a_forced_release_raises_the_counter() -> None:
    node = Node()
    assert node.take("one") == 101
    assert node.ask(node.commands.force("x", VOTE, 0, "somebody released x")) == [1, 102]
    assert node.ask(node.commands.force("x", VOTE, 200, "")) == [0, 200]
    assert node.take("two") == 201


def waits(node: Node, *owners: str) -> None:
    """Waiters on a channel that no client listens to any more."""
    prefixes = node.commands.prefixes_for(LockTerms(30.0))
    for owner in owners:
        node.ask(prefixes.wait + bulk(b"nobody") + bulk(owner.encode()))
    assert node.server("LRANGE", QUEUE, 0, -1) == [owner.encode() for owner in owners]


def test_those_who_do_not_listen_any_more_are_passed_over() -> None:
    node = Node()
    node.take("one")
    waits(node, "two", "three")
    prefixes = node.commands.prefixes_for(LockTerms(30.0))
    assert node.free("one", UNMARKED) == 1  # a round that failed wakes nobody
    assert node.server("LLEN", QUEUE) == 2
    node.take("four")
    assert node.ask(prefixes.release + bulk(b"four")) == 1
    assert node.server("LLEN", QUEUE) == 0


def test_who_leaves_a_lock_that_is_free_wakes_the_next() -> None:
    """The waiter that leaves may have been the one that was woken."""
    node = Node()
    node.take("one")
    waits(node, "two", "three")
    prefixes = node.commands.prefixes_for(LockTerms(30.0))
    assert node.ask(prefixes.leave + bulk(b"two")) == 1
    assert node.server("LLEN", QUEUE) == 1  # it is held
    assert node.server("EXISTS", LOCK + ":b") == 1
    node.free("one", UNMARKED)
    waits(node, "three", "two")
    assert node.ask(prefixes.leave + bulk(b"two")) == 1
    assert node.server("LLEN", QUEUE) == 0
    node.take("four")
    waits(node, "five")
    assert node.ask(prefixes.leave + bulk(b"five")) == 1
    assert node.server("EXISTS", LOCK + ":b") == 0  # the last takes the bell down


def test_each_release_wakes_the_first_who_waits_and_a_failed_round_does_not() -> None:
    node = Node()
    prefixes = node.commands.prefixes_for(LockTerms(30.0))
    with socket.create_connection(("127.0.0.1", node.server.port), 10.0) as listener:
        reader = Reader()

        def on_reply() -> Any:
            while (message := reader.gets()) is False:
                data = listener.recv(4096)
                assert data
                reader.feed(data)
            return message[2]

        listener.sendall(pack(b"SUBSCRIBE", b"two's"))
        assert on_reply() == 1
        node.take("one")
        node.ask(prefixes.wait + bulk(b"two's") + bulk(b"two"))
        for round_ in ("one", "three", "four"):
            node.take(round_)
            assert node.ask(prefixes.release + bulk(round_.encode())) == 1
            assert on_reply() == b"two 0"
        node.take("five")
        assert node.free("five", UNMARKED) == 1
        node.take("six")
        assert node.ask(node.commands.release_batch.pack([prefixes.lock], [bulk(b"six")], b"")) == [
            1
        ]
        node.server("PUBLISH", "two's", "the end")
        assert [on_reply(), on_reply()] == [b"two 0", b"the end"]
