"""Rules of the protocol about lives, seals and the first start, on the scripts as they are."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.chaos.servers.errors import ServerError
from holdfast.stores.redis.wire.protocol import bulk
from holdfast.stores.redlock.commands import (
    STRIPES,
    UNMARKED,
    Renewal,
    packed_before,
)
from redlock.node import BEGINNING, COUNTERS, ELSEWHERE, LOCK, RUN_ID, VOTE, LockTerms, Node


def test_another_life_has_no_vote() -> None:
    node = Node()
    with pytest.raises(ServerError, match=r"^HFOUT "):
        node.take("one", vote=bulk(RUN_ID + b".2"))
    node.server("DEL", "holdfast:redlock:marker")
    with pytest.raises(ServerError, match=r"^HFOUT "):
        node.take("one")


def test_all_who_help_a_node_use_the_first_number_that_was_proposed() -> None:
    node = Node()
    other = b"b" * 40
    state, incarnation, _, how, _, life, roster = node.ask(
        node.commands.begin(other, other + b".7", b"again", 0)
    )
    assert (state, incarnation, how, life, roster) == (0, other + b".7", b"again", 0, b"")
    assert node.ask(node.commands.begin(other, other + b".8", b"again", 4))[5] == 4
    reply = node.ask(node.commands.begin(other, other + b".9", b"again", 9))
    assert (reply[1], reply[5]) == (other + b".7", 4)


def test_a_seal_is_told_with_every_later_vote() -> None:
    node = Node()
    assert node.take("one") == 101
    assert node.ask(node.commands.seal(VOTE, "b:1", 2)) == [101, 0, b""]
    assert node.ask(node.commands.seal(VOTE, "b:1", 1)) == [101, 2, b"b:1=2"]
    assert node.take("one") == [101, b"b:1=2"]
    assert node.raise_("one", 101, 110) == [1, b"b:1=2"]


def test_a_first_start_does_not_admit_one_that_others_know_by_a_later_number() -> None:
    node = Node()
    other = b"b" * 40
    incarnation = node.ask(node.commands.begin(other, other + b".7", b"first", 0))[1]
    assert node.ask(node.commands.begin(other, other + b".8", b"again", 2))[5] == 2

    def admitted(life: int) -> Any:
        command = node.commands.admit(other, incarnation, life, 100, 60.0, ["a", "b", "c"], b"")
        return node.ask(command)[0]

    assert admitted(1) == 0
    assert admitted(2) == 1


def test_what_names_another_life_is_refused_by_every_script() -> None:
    node = Node()
    begin = node.take("one")
    prefixes = node.commands.prefixes_for(LockTerms(30.0))
    numbers = bulk(b"500") + packed_before(begin)
    for command in (
        prefixes.raise_ + numbers + ELSEWHERE + bulk(b"one"),
        node.commands.renew(ELSEWHERE, [Renewal("x", bulk(b"one"), begin, 60.0)]),
        node.commands.seal(ELSEWHERE, "b:1", 2),
        node.commands.force("x", ELSEWHERE, 0, "somebody released x"),
    ):
        with pytest.raises(ServerError, match=r"^HFOUT "):
            node.ask(command)
    assert node.take("one") == begin  # and it still holds it, for as long
    assert node.server("PTTL", LOCK) <= 30_000


def test_a_seal_answers_the_highest_counter_of_all_locks() -> None:
    node = Node()
    node.ask(node.commands.force("y", VOTE, 900, ""))
    assert node.take("one") == 101
    assert node.ask(node.commands.seal(VOTE, "b:1", 0)) == [900, 0, b""]
    assert node.ask(node.commands.seal(VOTE, "b:1", 0)) == [900, 0, b""]  # that was a look


def test_who_comes_back_forgets_its_counters_and_what_was_begun_in_another_run() -> None:
    node = Node()
    node.take("one")
    node.free("one", UNMARKED)
    first, second = b"b" * 40, b"c" * 40
    members = ["a", "b", "c"]
    node.ask(node.commands.begin(first, first + b".1", b"again", 2))
    reply = node.ask(node.commands.begin(second, second + b".1", b"again", 0))
    assert (reply[1], reply[5]) == (second + b".1", 0)  # it has restarted again
    late = node.commands.admit(first, first + b".1", 2, 5000, 60.0, members, b"")
    assert node.ask(late) == [0]
    state, _ = node.ask(node.commands.admit(second, second + b".1", 3, 700, 60.0, members, b""))
    assert state == 1
    assert node.server("EXISTS", BEGINNING) == 0
    assert node.take("two", vote=bulk(second + b".1")) == 701


def test_a_seal_reads_and_a_new_life_forgets_as_many_counters_as_there_may_be() -> None:
    node = Node()
    node.take("one")
    fill = """for i = 1, tonumber(ARGV[1]) do
      redis.call('SET', KEYS[1] .. i, 1000 + i)
      redis.call('RPUSH', KEYS[1] .. 's', KEYS[1] .. i)
    end"""
    node.server("EVAL", fill, 1, COUNTERS[:-1], STRIPES)
    assert node.ask(node.commands.seal(VOTE, "b:1", 0))[0] == 1000 + STRIPES
    run = b"b" * 40
    node.ask(node.commands.begin(run, run + b".1", b"again", 2))
    node.ask(node.commands.admit(run, run + b".1", 2, 50_000, 60.0, ["a", "b", "c"], b""))
    assert node.server("DBSIZE") == 2  # the marker, and the hold


def test_the_roster_of_a_first_start_is_the_first_that_was_noted() -> None:
    node = Node()
    run = b"b" * 40
    incarnation = node.ask(node.commands.begin(run, run + b".1", b"first", 0))[1]
    for proposed in (b"aa", b"bb", b""):
        assert node.ask(node.commands.begin(run, run + b".2", b"first", 0, proposed))[6] == b"aa"

    def admitted(roster: bytes) -> Any:
        members = ["a", "b", "c"]
        return node.ask(node.commands.admit(run, incarnation, 1, 1, 60.0, members, b"", roster))[0]

    assert admitted(b"bb") == 0
    assert admitted(b"aa") == 1
    again = b"c" * 40  # restarted: what was noted is of another run
    assert node.ask(node.commands.begin(again, again + b".1", b"again", 0))[6] == b""
