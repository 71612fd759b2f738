"""Deadlocks, found in what a store shows: every shape of circle, and what is none."""

from __future__ import annotations

import itertools
import random

import pytest

from holdfast import checks
from holdfast.model import (
    AROUND,
    Label,
    LockState,
    Participant,
    around,
    new_owner,
    new_session_id,
    party_of,
    sessions_around,
)
from holdfast.wait_graph import deadlocks_in, in_both

_tokens = itertools.count(1)
SESSIONS: dict[str, str] = {}


def holder(who: str, weight: int = 1) -> Participant:
    return entry(who, weight)._replace(token=next(_tokens))


def entry(who: str, weight: int = 1, since: float = 0.0) -> Participant:
    """An entry of the manager with that name; a new attempt each time."""
    session = SESSIONS.setdefault(who, new_session_id())
    return Participant(new_owner(session), Label("host", 7, who), 0, since, 9.0, weight)


def nested(monkeypatch: pytest.MonkeyPatch, *chains: str) -> None:
    """Has each manager of a chain run inside the one before it: new ones, of these names."""
    for chain in chains:
        sessions: list[str] = []
        for who in chain:
            monkeypatch.setenv(AROUND, ",".join(sessions))
            SESSIONS[who] = new_session_id() + sessions_around()
            sessions.insert(0, SESSIONS[who][:10])
    monkeypatch.delenv(AROUND)


def lock(name: str, holders: str, waiters: str = "", capacity: int = 1) -> LockState:
    """A lock that one-letter managers hold and wait for; a capital wants all of it."""

    def weight(who: str) -> int:
        return capacity if who.isupper() else 1

    return LockState(
        name,
        tuple(holder(who.lower(), weight(who)) for who in holders),
        tuple(entry(who.lower(), weight(who)) for who in waiters),
        0,
        capacity=capacity,
    )


def found(*states: LockState, fair: bool = True) -> list[set[tuple[str, str]]]:
    """The names of the locks in each circle, and who waits for them."""
    return [
        {(wait.name, wait.waiter.label.text) for wait in deadlock.cycle}
        for deadlock in deadlocks_in(states, fair)
    ]


def test_two_that_wait_for_each_other() -> None:
    states = [lock("x", "a", "b"), lock("y", "b", "a")]
    (deadlock,) = deadlocks_in(states)
    assert sorted(deadlock.names) == ["x", "y"]
    assert sorted(label.text for label in deadlock.participants) == ["a", "b"]
    for wait, following in zip(
        deadlock.cycle, [*deadlock.cycle[1:], deadlock.cycle[0]], strict=True
    ):
        assert party_of(wait.blocker) == party_of(following.waiter)
        assert wait.blocker.token > 0
    assert "a (host:7) waits for 'y', which is held by b (host:7)" in str(deadlock)


def test_since_is_when_the_last_began_to_wait() -> None:
    first = LockState("x", (holder("a"),), (entry("b", since=5.0),), 0)
    second = LockState("y", (holder("b"),), (entry("a", since=9.0),), 0)
    (deadlock,) = deadlocks_in([first, second])
    assert deadlock.since == 9.0


def test_who_only_waits_is_in_no_circle() -> None:
    assert found() == []
    assert found(lock("x", "a", "bc")) == []
    assert found(lock("x", "a", "b"), lock("y", "b", "c"), lock("z", "c", "d")) == []


def test_a_manager_does_not_wait_for_itself() -> None:
    assert found(lock("x", "a", "aa")) == []
    assert (
        found(lock("x", "a", "ba")) == []
    )  # nor behind another: its holder may be about to release
    assert found(lock("s", "ab", "ab", capacity=2)) == []
    assert found(lock("x", "a", "ba"), lock("y", "b", "a")) == [{("x", "b"), ("y", "a")}]


def test_a_long_circle_and_those_who_wait_for_it() -> None:
    letters = "abcdefgh"
    states = [
        lock(who, who, letters[(place + 1) % len(letters)]) for place, who in enumerate(letters)
    ]
    assert len(found(*states, lock("z", "a", "y"))[0]) == len(letters)


def test_a_very_long_circle() -> None:
    many = [f"m{number}" for number in range(2000)]
    states = [
        LockState(who, (holder(who),), (entry(many[place - 1]),), 0)
        for place, who in enumerate(many)
    ]
    (deadlock,) = deadlocks_in(states)
    assert len(deadlock.cycle) == 2000


def test_many_waiters_cost_no_square() -> None:
    """Of two locks with 10,000 waiters each; the circle is far behind in both queues."""
    crowd = tuple(entry(f"c{number}") for number in range(10_000))
    states = [
        LockState("x", (holder("a"),), (*crowd, entry("b")), 0),
        LockState("y", (holder("b"),), (*crowd, entry("a")), 0),
    ]
    assert len(deadlocks_in(states)) == 1


def test_the_shortest_circle_is_told() -> None:
    states = [lock("x", "a", "b"), lock("y", "b", "c"), lock("z", "c", "a"), lock("w", "b", "a")]
    assert found(*states) == [{("x", "b"), ("w", "a")}]


def test_two_deadlocks_are_two() -> None:
    states = [lock("x", "a", "b"), lock("y", "b", "a"), lock("z", "c", "d"), lock("w", "d", "c")]
    assert len(found(*states)) == 2


def test_an_earlier_waiter_blocks_where_the_order_counts() -> None:
    """b holds y, and waits behind a for x, which c holds; a waits for y. And c is about to release."""
    states = [lock("x", "c", "ab"), lock("y", "b", "a")]
    assert found(*states) == [{("x", "b"), ("y", "a")}]
    assert found(*states, fair=False) == []


def test_a_permit_that_will_be_free_ends_no_circle() -> None:
    """a and c hold the two permits; a waits for b, who waits for a permit: c will give one back."""
    assert found(lock("s", "ac", "b", capacity=2), lock("x", "b", "a")) == []
    assert found(lock("s", "aa", "b", capacity=2), lock("x", "b", "a")) != []
    stuck = [lock("s", "ac", "b", capacity=2), lock("x", "b", "ac")]
    assert len(found(*stuck)) == 1


def test_readers_and_writers() -> None:
    readers = lock("r", "ab", "C", capacity=100)  # c wants to write, and waits for both
    assert found(readers) == []
    assert found(readers, lock("x", "c", "a")) == [{("r", "c"), ("x", "a")}]
    # A reader behind the waiting writer waits for it, though it would fit beside the readers.
    behind = lock("r", "a", "Cb", capacity=100)
    assert found(behind, lock("x", "b", "a")) == [{("x", "a"), ("r", "b")}] or found(
        behind, lock("x", "b", "a")
    ) == [{("r", "c"), ("x", "a"), ("r", "b")}]
    assert found(lock("r", "a", "b", capacity=100), lock("x", "b", "a")) == []


def test_clients_of_one_manager_are_told_apart_by_their_labels() -> None:
    session = new_session_id()

    def of(text: str) -> Participant:
        return Participant(new_owner(session), Label("service", 1, text), 0, 0.0, 9.0)

    states = [
        LockState("x", (of("one")._replace(token=1),), (of("two"),), 1),
        LockState("y", (of("two")._replace(token=2),), (of("one"),), 2),
    ]
    assert len(deadlocks_in(states)) == 1


def test_owner_ids_from_outside_count_by_their_labels() -> None:
    def of(owner: str, pid: int, token: int = 0) -> Participant:
        return Participant(owner, Label("host", pid, "job"), token, 0.0, 9.0)

    states = [
        LockState("x", (of("req-1", 1, 5),), (of("req-2", 2),), 5),
        LockState("y", (of("req-3", 2, 6),), (of("req-4", 1),), 6),
    ]
    assert len(deadlocks_in(states)) == 1


def test_an_owner_id_carries_its_session() -> None:
    session = new_session_id()
    owners = {new_owner(session) for _ in range(100)}
    assert len(owners) == 100
    assert all(len(owner) == 24 and owner.startswith(session) for owner in owners)
    one = Participant(f"{owners.pop()}~2", Label("h", 1), 1, 0.0, 0.0)
    assert party_of(one) == (session, "")


def test_what_was_never_true_at_once_is_not_in_both() -> None:
    x, y = lock("x", "a", "b"), lock("y", "b", "a")
    assert len(deadlocks_in(in_both([x, y], [x, y]))) == 1
    # Read again, b holds y as another owner: it had released it meanwhile.
    later = lock("y", "b", "a")
    assert deadlocks_in(in_both([x, y], [x, later])) == []
    # Granted meanwhile: a waiter that has become the holder is neither.
    granted = y._replace(holders=(y.waiters[0]._replace(token=99),), waiters=())
    assert deadlocks_in(in_both([x, y], [x, granted])) == []
    assert deadlocks_in(in_both([x], [x, y])) == []


def test_random_graphs_agree_with_a_plain_search() -> None:
    """With mutexes and one wait each, a party is in a deadlock when its chain of waits comes back."""
    chance = random.Random(3)
    for _ in range(300):
        parties = "abcdefgh"[: chance.randint(2, 8)]
        owner_of = {name: chance.choice(parties) for name in "stuvwxyz"}
        wanted = {who: chance.choice("stuvwxyz") for who in parties if chance.random() < 0.7}
        states = [
            lock(name, held_by, "".join(who for who in wanted if wanted[who] == name)[:1])
            for name, held_by in owner_of.items()
        ]
        first = {  # of several waiters only the first is kept, so that queues play no part
            state.waiters[0].label.text: state.holders[0].label.text
            for state in states
            if state.waiters
        }

        def comes_back(who: str, first: dict[str, str] = first) -> bool:
            at = who
            for _ in range(len(first) + 1):
                if at not in first or first[at] == at:
                    return False
                at = first[at]
                if at == who:
                    return True
            return False

        in_circles = {who for who in first if comes_back(who)}
        told = {label.text for one in deadlocks_in(states) for label in one.participants}
        assert told == in_circles


def test_who_runs_inside_another_keeps_it_from_giving_back(monkeypatch: pytest.MonkeyPatch) -> None:
    nested(monkeypatch, "no", "pq")
    states = [lock("x", "n", "q"), lock("y", "p", "o")]
    (deadlock,) = deadlocks_in(states)
    assert {(wait.name, wait.waiter.label.text) for wait in deadlock.cycle} == {
        ("x", "q"),
        ("y", "o"),
    }
    assert "o (host:7) waits for 'y', which is held by p (host:7), which runs q" in str(deadlock)
    inner = {inner.label.text for _, inner in deadlock.steps() if inner is not None}
    assert inner == {"o", "q"}
    assert found(states[0], lock("y", "z", "o")) == []
    assert found(states[0], states[1], lock("z", "o", "q")) != []


def test_inside_what_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where the one between is in another store: all that are around it are known."""
    for chain in ("no", "nmo", "nmmo"):
        nested(monkeypatch, chain)
        circle = [lock("x", "n", "b"), lock("y", "b", "o")]
        assert found(*circle, lock("between", "m")) == [{("x", "b"), ("y", "o")}]
        assert found(*circle) == [{("x", "b"), ("y", "o")}]
    nested(monkeypatch, "nmmmo")  # more than an owner id can name
    assert found(lock("x", "n", "b"), lock("y", "b", "o")) == []


def test_who_waits_for_what_is_held_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nested(monkeypatch, "no")
    (deadlock,) = deadlocks_in([lock("x", "n", "o")])
    assert deadlock.names == ("x",)
    assert str(deadlock).endswith("which runs o (host:7)")
    assert found(lock("x", "n", "b")) == []


def test_two_inside_the_same_one_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    nested(monkeypatch, "no")
    SESSIONS["q"] = new_session_id() + SESSIONS["n"]
    around = lock("a", "n")
    assert found(around, lock("x", "o", "b"), lock("y", "b", "q")) == []  # o ends, and gives back x
    assert found(around, lock("x", "o", "q"), lock("y", "q", "o")) == [{("x", "q"), ("y", "o")}]


def test_it_gives_back_when_all_inside_it_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    nested(monkeypatch, "no")
    SESSIONS["q"] = new_session_id() + SESSIONS["n"]
    circle = [lock("x", "n", "b"), lock("y", "b", "o")]
    assert found(*circle, lock("z", "q")) == [{("x", "b"), ("y", "o")}]  # o goes on waiting
    one_of_two = lock("s", "nk", "w", capacity=2)
    assert found(one_of_two, lock("y", "w", "k"), lock("z", "q")) == []  # n ends, and s has room
    assert found(one_of_two, lock("y", "w", "ko")) != []


def test_two_that_claim_to_run_inside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """No honest programs do, and nobody stumbles over it."""
    first, second = "1" * 10, "2" * 10
    SESSIONS.update(n=first + second, o=second + first)
    assert found(lock("x", "n", "o")) == []
    assert found(lock("x", "n", "b"), lock("y", "o", "c")) == []


def test_only_ids_of_sessions_are_taken_for_what_is_around(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three, four = ("0123456789", "1" * 10, "2" * 10, "3" * 10)
    for told, expected in [
        (one, [one]),
        (f"{one},{two}", [one, two]),
        (",".join([one, two, three, four]), [one, two, three]),
        (f"me,{two}", [two]),
        ("x" * 10, []),
        ("0" * 1_000_000, []),
        ("", []),
    ]:
        monkeypatch.setenv(AROUND, told)
        owner = new_owner(new_session_id() + sessions_around())
        assert around(owner) == expected
        assert around(f"{owner}~7") == expected
        assert len(owner) == 24 + 10 * len(expected) <= checks.MAX_OWNER - 10
    assert around("mine") == around("f" * 30) == []
    monkeypatch.setenv(AROUND, one)
    assert around(new_owner()) == []  # of nobody's session: a service makes it for a client


def test_all_locks_of_a_deadlock_are_named_though_its_circle_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nested(monkeypatch, "no")
    SESSIONS["q"] = new_session_id() + SESSIONS["n"]
    states = [lock("c", "n", "b"), lock("x", "b", "o"), lock("y", "b", "q"), lock("z", "b", "w")]
    (deadlock,) = deadlocks_in(states)
    assert len(deadlock.cycle) == 2
    assert deadlock.locks == ("c", "x", "y")  # and not z: who waits for it is waited for by nobody
