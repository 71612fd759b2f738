"""The state of a lock, from the replies of its nodes."""

from __future__ import annotations

from holdfast.stores.redis.answers import FOREIGN
from holdfast.stores.redlock.lock_state import read_lock


def held(owner: bytes, token: int, left: int = 5000) -> list[object]:
    fields = (b"rl1", owner, b"%d" % token, b"%d" % token, b"1000000", b"5000", b"host", b"7", b"")
    return [b"\x1f".join(fields), left, b"%d" % token, [], [], 0]


def began(owner: bytes, before: int) -> list[object]:
    fields = (b"rl1", owner, b"%d" % before, b"", b"1000000", b"5000", b"host", b"7", b"")
    return [b"\x1f".join(fields), 5000, b"%d" % (before + 1), [], [], 0]


FREE: list[object] = [None, -2, b"0", [], [], 0]


def test_the_rest_of_several_rounds_is_not_a_holder() -> None:
    """Each round has an id of its own: none of these has a majority."""
    answers = [held(b"one", 7), held(b"one~1", 8), held(b"one~2", 9), FREE, FREE]
    assert read_lock("x", answers, 3, 5, ()).state.holders == ()


def test_a_hold_for_which_no_token_was_agreed_upon_has_the_value_at_which_it_began() -> None:
    (holder,) = read_lock("x", [began(b"one", 7)] * 3 + [FREE] * 2, 3, 5, ()).state.holders
    assert holder.token == 8


def test_a_holder_is_known_by_its_owner_and_a_majority_says_its_token() -> None:
    answers = [
        held(b"one~1", 8),
        held(b"one~1", 8, 900),
        held(b"one~1", 8),
        held(b"one~1", 11),
        FREE,
    ]
    (holder,) = read_lock("x", answers, 3, 5, ()).state.holders
    assert (holder.owner, holder.token, holder.remaining) == ("one", 8, 5.0)
    assert (holder.label.host, holder.label.pid) == ("host", 7)


def test_what_begins_like_ours_and_cannot_be_read_is_a_strangers() -> None:
    good = held(b"one", 7)
    for value in (
        b"rl1\x1f",
        b"rl1\x1fme\x1fx\x1f\x1f\x1f",
        b"rl1\x1fme\x1f7\x1f7\x1fx\x1f5000\x1fh\x1fy\x1f",
    ):
        bad: list[object] = [value, 5000, b"0", [b"two", value, 100], [], 0]
        (holder,) = read_lock("x", [good, good, bad], 2, 3, ()).state.holders
        assert (holder.owner, holder.token) == ("one", 7)
        state = read_lock("x", [good, bad, bad], 2, 3, ()).state
        assert [one.label for one in state.holders] == [FOREIGN]
        assert state.waiters == ()
