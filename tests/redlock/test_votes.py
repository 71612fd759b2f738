"""The counting of votes, without any node."""

from __future__ import annotations

from holdfast.clock import system_clock
from holdfast.stores.redlock.address import parse_settings
from holdfast.stores.redlock.membership import Marker, NodeTable, failure_reason
from holdfast.stores.redlock.votes import Ballot, Tally
from holdfast.stores.urls import parse


def table(lives: tuple[int, ...] = (1, 1, 1, 1, 1)) -> NodeTable:
    names = "abcde"[: len(lives)]
    url = "redlock://" + ",".join(f"{name}:1" for name in names)
    made = NodeTable(parse_settings(parse(url), {}), system_clock())
    for state, life in zip(made.nodes, lives, strict=True):
        state.let_vote(Marker(b"life%d" % life, life, 1, 1, b"", b""))
    return made


def ballot(*begins: int, lives: tuple[int, ...] = (1, 1, 1, 1, 1)) -> Ballot:
    """Returns a ballot of five nodes, of which some have replied."""
    made = Ballot(table(lives))
    made.outstanding = 5
    for index, begin in enumerate(begins):
        made.count_take(index, begin)
    return made


def test_a_majority_that_is_in_step_needs_no_second_phase() -> None:
    made = ballot(7, 7, 7)
    assert made.close()
    assert (made.token, made.below(), made.in_step) == (7, [], True)
    assert made.stands()


def test_it_is_enough_when_a_majority_has_granted_or_cannot_any_more() -> None:
    made = Ballot(table())
    made.outstanding = 5
    assert [made.count_take(index, 7) for index in range(3)] == [False, False, True]
    lost = Ballot(table())
    lost.outstanding = 5
    answers = [lost.count_take(index, [-1, 1000, b"other"]) for index in range(3)]
    assert answers == [False, False, True]
    assert lost.held_by_one()
    assert lost.remaining() == 1.0
    assert not lost.close()


def test_less_than_a_majority_is_nothing() -> None:
    made = ballot(7, 7)
    assert not made.close()


def test_the_token_is_the_highest_and_the_others_have_to_confirm_it() -> None:
    made = ballot(7, 9, 8)
    assert made.close()
    assert (made.token, made.below(), made.in_step) == (9, [0, 2], False)
    made.outstanding = 2
    assert made.count_raise(0, 1) is False
    assert made.count_raise(2, 0) is True  # that hold is over
    assert not made.stands()


def test_it_stands_when_a_majority_has_confirmed() -> None:
    made = ballot(7, 9, 9, 7)
    assert made.close()
    made.outstanding = 2
    assert made.count_raise(3, 1) is True
    assert made.stands()
    assert sorted(made.counted) == [1, 2, 3]


def test_an_answer_that_comes_after_the_token_was_chosen_is_never_counted() -> None:
    for begins in ((7, 7, 7), (7, 9, 8)):
        made = ballot(*begins)
        made.close()
        token, counted = made.token, list(made.counted)
        assert made.count_take(3, 12) is True
        assert made.count_take(4, [token, b""]) is True
        assert (made.token, made.counted) == (token, counted)
        assert made.begins[3] == 12  # it is renewed and given back with the others


def test_a_vote_of_an_earlier_life_is_dropped() -> None:
    made = ballot(7, 7)
    made.count_take(2, [7, b"a:1=2"])  # the third knows of a later life of the first
    assert not made.close()
    same = ballot(7, 7, lives=(2, 1, 1, 1, 1))
    same.count_take(2, [7, b"a:1=2"])
    assert same.close()
    assert same.stands()


def test_what_a_node_knows_by_the_second_phase_counts_as_well() -> None:
    made = ballot(7, 9, 8)
    assert made.close()
    made.outstanding = 2
    made.count_raise(0, 1)
    made.count_raise(2, [1, b"b:1=2"])
    assert not made.stands()


def test_a_renewal_needs_a_majority_and_is_lost_when_there_can_be_none() -> None:
    tally = Tally(1, 3, 5)
    for _ in range(2):
        tally.add(0, True)
        tally.add(0, False)
    assert not tally.is_decided(0)
    assert not tally.is_done()
    tally.add(0, False)
    assert tally.is_decided(0)
    assert tally.is_done()
    assert tally.yes[0] == 2
    other = Tally(2, 3, 5)
    for _ in range(3):
        other.add(0, True)
    assert other.is_decided(0)
    assert not other.is_done()


def test_one_who_has_left_does_not_put_the_node_out() -> None:
    assert failure_reason(Exception("HFLEFT this owner has left")) == ""
    assert "does not vote" in failure_reason(
        Exception("HFOUT it does not vote in this incarnation")
    )
    assert "scripts" in failure_reason(Exception("NOSCRIPT No matching script"))
    assert failure_reason(Exception("LOADING Redis is loading")) == "LOADING Redis is loading"


def test_it_may_be_had_when_as_many_are_free_as_are_missing() -> None:
    refused = [[-1, ms, b"other%d" % ms] for ms in (9000, 1000, 5000)]
    made = ballot()
    for index, reply in enumerate(refused):
        made.count_take(index, reply)
    assert made.remaining() == 9.0
    made = ballot(7, 7)
    for index, reply in enumerate(refused, 2):
        made.count_take(index, reply)
    assert made.remaining() == 1.0
    made = ballot(7)
    for index, reply in enumerate(refused, 2):
        made.count_take(index, reply)
    assert made.remaining() == 5.0
