"""Semaphores and read/write locks on one node: single rules, on the scripts as they are."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.chaos.servers.errors import ServerError
from holdfast.model import Label
from holdfast.stores.redis.wire.protocol import bulk
from holdfast.stores.redlock.commands import (
    MARKED,
    QUIET,
    UNMARKED,
    WAKING,
    CommandPrefixes,
    Renewal,
    packed_before,
)
from holdfast.stores.redlock.shared_commands import SharedCommands, as_reader
from redlock.node import VOTE, LockTerms, Node

LARGE = 20_000


class Terms:
    name = "x"
    label = Label("host", 1)

    def __init__(self, kind: str, capacity: int, ttl: float = 30.0) -> None:
        self.kind, self.capacity, self.weight, self.ttl = kind, capacity, 1, ttl


class SharedNode(Node):
    """One server that votes, asked for a part of a lock."""

    def semaphore(self, permits: int, slot: int, ttl: float = 30.0) -> CommandPrefixes:
        return SharedCommands(self.commands, Terms("semaphore", permits, ttl), "s").prefixes(slot)

    def side(self, letter: str, ttl: float = 30.0, intent: bool = False) -> CommandPrefixes:
        terms = Terms("rwlock", 1000, ttl)
        return SharedCommands(self.commands, terms, letter).prefixes(None, intent)

    def get(self, prefixes: CommandPrefixes, owner: str) -> Any:
        return self.ask(prefixes.take + bulk(owner.encode()) + VOTE)

    def give(self, prefixes: CommandPrefixes, owner: str, mark: bytes = UNMARKED) -> Any:
        return self.ask(prefixes.free + bulk(owner.encode()) + mark + QUIET)

    def keep(self, prefixes: CommandPrefixes, owner: str, begin: int, ttl: float) -> Any:
        renewal = Renewal("x", bulk(owner.encode()), begin, ttl, prefixes.mode)
        return self.ask(self.commands.renew(VOTE, [renewal]))[0]

    def run_out(self, prefixes: CommandPrefixes, owner: str, begin: int) -> None:
        """Lets a hold end with its time."""
        head = self.commands.detach(prefixes, 0.001)
        assert self.ask(head + VOTE + packed_before(begin) + bulk(owner.encode())) == 1
        while self.ask(self.commands.inspect(["x"]))[0][4]:
            time.sleep(0.001)

    def lock_keys(self) -> list[bytes]:
        return sorted(key for key in self.server("KEYS", "*") if b"{" in key)


def test_a_slot_is_a_lock_of_its_own() -> None:
    node = SharedNode()
    first, second = node.semaphore(3, 0), node.semaphore(3, 1)
    assert node.get(first, "one") == 101
    assert node.get(first, "one") == 101
    assert node.get(second, "two") == 102
    assert node.get(first, "three") == [-1, 0, b"one", 2]
    assert node.give(first, "two") == 0
    assert node.give(first, "one") == 1
    assert node.get(first, "three") == 103
    assert node.get(node.semaphore(3, 2), "four") == 104
    refused, left, holders = node.get(second, "five")
    assert (refused, holders) == (-1, b"*")
    assert 29_000 < left <= 30_000


def test_phase_2_of_a_slot_wants_the_very_hold() -> None:
    node = SharedNode()
    slot = node.semaphore(3, 1)
    begin = node.get(slot, "one")
    node.run_out(slot, "one", begin)
    again = node.get(slot, "one")
    assert again > begin

    def lift(owner: str, value: int) -> Any:
        numbers = bulk(b"500") + packed_before(value)
        return node.ask(slot.raise_ + numbers + VOTE + bulk(owner.encode()))

    assert lift("one", begin) == 0
    assert lift("two", again) == 0
    assert lift("one", again) == 1
    assert node.get(node.semaphore(3, 2), "two") == 501


def test_a_hold_that_is_over_is_not_renewed_and_leaves_nothing() -> None:
    node = SharedNode()
    slot = node.semaphore(3, 1)
    begin = node.get(slot, "one")
    assert node.keep(slot, "one", begin, 30.0) == 1
    node.run_out(slot, "one", begin)
    assert node.keep(slot, "one", begin, 10.0) == 0
    assert node.give(slot, "one") == 0
    assert node.lock_keys() == []


def test_a_renewal_never_shortens() -> None:
    node = SharedNode()
    slot = node.semaphore(3, 1)
    begin = node.get(slot, "one")

    def left() -> int:
        (found,) = node.ask(node.commands.inspect(["x"]))
        return int(found[4][2])

    assert node.keep(slot, "one", begin, 5.0) == 1
    assert left() > 29_000
    assert node.keep(slot, "one", begin, 50.0) == 1
    assert left() > 49_000
    assert node.server("PTTL", "holdfast:{x}") >= left()


def test_every_key_of_a_shared_lock_ends_by_itself() -> None:
    node = SharedNode()
    node.get(node.semaphore(3, 1), "one")
    node.get(node.semaphore(3, 2, ttl=300.0), "two")
    node.server("PTTL", "holdfast:{x}")
    assert len(node.lock_keys()) == 4
    for key in node.lock_keys():
        assert 300_000 < node.server("PTTL", key) <= 600_000, key


def test_a_request_that_comes_after_its_clean_up_is_refused() -> None:
    node = SharedNode()
    for prefixes in (node.semaphore(3, 1), node.side("r"), node.side("w")):
        owner = f"left {prefixes.mode!r}"
        assert node.give(prefixes, owner, MARKED) == 0
        with pytest.raises(ServerError, match=r"^HFLEFT "):
            node.get(prefixes, owner)


def test_a_large_semaphore_names_a_few_slots_that_are_free() -> None:
    """Neither the reply nor the node's keys grow with the number of permits."""
    node = SharedNode()
    answer = node.get(node.semaphore(LARGE, 12_345), "one")
    assert answer == 101
    refused, left, holder, *free = node.get(node.semaphore(LARGE, 12_345), "two")
    assert (refused, left, holder) == (-1, 0, b"one")
    assert 1 <= len(free) <= 64
    assert 12_345 not in free
    assert all(abs(slot - 12_345) < 100 for slot in free)
    assert node.server("STRLEN", "holdfast:{x}:m") <= LARGE // 8 + 1


def test_the_last_free_slot_of_many_is_found() -> None:
    node = SharedNode()
    node.get(node.semaphore(LARGE, 7), "one")
    bits = bytearray(b"\xff" * (LARGE // 8))  # as if all of them were taken but one
    bits[15_001 // 8] ^= 1 << 7 - 15_001 % 8
    node.server("SET", "holdfast:{x}:m", bytes(bits), "KEEPTTL")
    assert node.get(node.semaphore(LARGE, 7), "two") == [-1, 0, b"one", 15_001]


def test_readers_share_and_a_writer_does_not() -> None:
    node = SharedNode()
    reader, writer = node.side("r"), node.side("w")
    assert node.get(reader, "one") == 101
    assert node.get(reader, "two") == 102
    assert node.get(reader, "one") == 101
    assert node.get(writer, "three")[::2] == [-1, b"*"]
    assert node.give(reader, "one") == 1
    assert node.get(writer, "three")[::2] == [-1, b"*"]
    assert node.give(reader, "two") == 1
    assert node.get(writer, "three") == 103
    assert node.get(writer, "four")[::2] == [-1, b"three"]
    assert node.get(reader, "five")[::2] == [-1, b"three"]
    assert node.give(writer, "three") == 1
    assert node.lock_keys() == []


def test_a_writer_that_waits_keeps_new_readers_off_for_a_moment() -> None:
    node = SharedNode()
    reader, writer = node.side("r"), node.side("w", intent=True)
    begin = node.get(reader, "one")
    assert node.get(writer, "two~1")[0] == -1
    refused, left, holder = node.get(reader, "three")
    assert (refused, holder) == (-1, b"two")
    assert 0 < left <= 2500
    assert node.get(reader, "one") == begin  # who has it, has it
    assert node.keep(reader, "one", begin, 30.0) == 1
    assert node.ask(writer.leave + bulk(b"two")) == 0
    assert node.get(reader, "three") == begin + 1


def test_readers_have_their_turn_before_the_next_writer() -> None:
    node = SharedNode()
    reader, writer = node.side("r"), node.side("w", intent=True)
    node.get(writer, "one")
    assert node.get(writer, "two")[::2] == [-1, b"one"]  # it waits
    assert node.ask(writer.free + bulk(b"one") + UNMARKED + WAKING) == 1
    assert type(node.get(reader, "three")) is int


def test_who_only_tries_keeps_nobody_off() -> None:
    node = SharedNode()
    reader = node.side("r")
    node.get(reader, "one")
    assert node.get(node.side("w"), "two")[0] == -1
    assert type(node.get(reader, "three")) is int


def test_a_lock_has_one_kind_and_capacity_on_a_node() -> None:
    node = SharedNode()
    plain = node.take("one", ttl=30.0)
    assert node.get(node.semaphore(3, 1), "two")[::2] == [-2, b"lock\x1f1"]
    assert node.get(node.side("r"), "two")[::2] == [-2, b"lock\x1f1"]
    node.free("one", UNMARKED)
    slot = node.semaphore(3, 1)
    assert node.get(slot, "two") == plain + 1
    assert node.get(node.semaphore(4, 1), "three")[::2] == [-2, b"semaphore\x1f3"]
    assert node.get(node.side("w"), "three")[::2] == [-2, b"semaphore\x1f3"]
    assert node.take("three")[::2] == [-2, b"semaphore\x1f3"]
    node.run_out(slot, "two", plain + 1)
    assert node.take("three") == plain + 2  # what is over is in nobody's way


@pytest.mark.parametrize("kind", ["lock", "election", "once"])
def test_the_kinds_that_one_may_hold_are_told_apart_on_a_node(kind: str) -> None:
    node = SharedNode()

    def take(kind: str, owner: bytes) -> Any:
        terms = LockTerms(30.0)
        terms.kind = kind
        return node.ask(node.commands.prefixes_for(terms).take + bulk(owner) + VOTE)

    begin = take(kind, b"one")
    node.raise_("one", begin, begin)
    held_as = [kind.encode() + b"\x1f1"]
    for other in ("lock", "election", "once"):
        expected = [-1, b"one"] if other == kind else [-2, *held_as]
        assert take(other, b"two")[::2] == expected
    assert node.get(node.semaphore(3, 1), "two")[::2] == [-2, *held_as]
    # As it is when it was renewed, and when its text was changed.
    assert node.keep(node.commands.any_prefixes("x"), "one", begin, 40.0) == 1
    head = node.commands.amend(node.commands.any_prefixes("x"), 1, "words", False)
    assert node.ask(head + VOTE + packed_before(begin) + bulk(b"one")) == 1
    for other in {"lock", "election", "once"} - {kind}:
        assert take(other, b"two")[::2] == [-2, *held_as]
    assert take(kind, b"two")[::2] == [-1, b"one"]
    assert node.ask(node.commands.find("x", "one", ""))[2:] == held_as


def test_a_writer_becomes_a_reader_with_its_token() -> None:
    node = SharedNode()
    writer = node.side("w")
    begin = node.get(writer, "one")

    def amend(owner: str, value: int) -> Any:
        head = node.commands.amend(writer, 0, "", True)
        return node.ask(head + VOTE + packed_before(value) + bulk(owner.encode()))

    assert amend("two", begin) == 0
    assert amend("one", begin + 1) == 0
    assert amend("one", begin) == 1
    assert amend("one", begin) == 1
    later = node.get(node.side("r"), "two")
    assert later > begin + 1  # above the token that the writer wrote with
    assert node.get(node.side("w"), "three")[0] == -1
    reader = as_reader(writer)
    assert node.keep(reader, "one", begin, 30.0) == 1
    assert node.give(reader, "one") == 1


def test_an_adoption_begins_a_new_hold_in_one_step() -> None:
    node = SharedNode()
    slot = node.semaphore(3, 2)
    begin = node.get(slot, "giver~3")
    shared = SharedCommands(node.commands, Terms("semaphore", 3), "s")

    def adopt(heir: str, giver: str) -> Any:
        head = node.commands.adopt(slot, shared.request, bulk(giver.encode()))
        return node.ask(head + bulk(heir.encode()) + VOTE)

    assert adopt("heir", "giver") == [-1, 0, b""]  # not that round
    assert node.ask(node.commands.find("x", "giver", "heir")) == [
        b"giver~3",
        b"2",
        b"semaphore\x1f3",
    ]
    assert adopt("heir", "giver~3") == begin + 1
    assert adopt("heir", "giver~3") == begin + 1
    assert adopt("other", "giver~3") == [-1, 0, b""]
    assert node.keep(slot, "giver~3", begin, 30.0) == 0
    assert node.give(slot, "giver~3") == 0
    assert node.keep(slot, "heir", begin + 1, 30.0) == 1
    assert node.ask(node.commands.free_any("x", "heir")) == 1
    with pytest.raises(ServerError, match=r"^HFLEFT "):
        adopt("heir", "giver~3")


def test_a_detached_hold_lasts_exactly_so_long() -> None:
    node = SharedNode()
    slot = node.semaphore(3, 2)
    begin = node.get(slot, "one")
    head = node.commands.detach(slot, 5.0)
    assert node.ask(head + VOTE + packed_before(begin) + bulk(b"two")) == 0
    assert node.ask(head + VOTE + packed_before(begin) + bulk(b"one")) == 1
    (found,) = node.ask(node.commands.inspect(["x"]))
    assert 0 < found[4][2] <= 5000
    node.run_out(slot, "one", begin)
    assert node.ask(head + VOTE + packed_before(begin) + bulk(b"one")) == 0
    plain = SharedNode()
    begin = plain.take("one")
    prefixes = plain.commands.any_prefixes("x")
    head = plain.commands.detach(prefixes, 5.0)
    assert plain.ask(head + VOTE + packed_before(begin) + bulk(b"one")) == 1
    assert 0 < plain.server("PTTL", "holdfast:{x}") <= 5000
