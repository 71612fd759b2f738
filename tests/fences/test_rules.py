"""The rules as pure code: when a store has lost its memory, floors, readers at a single-use fence."""

from __future__ import annotations

import time

import pytest

import holdfast
from fences.scenes import StoreLease
from fences.sites import Site
from holdfast.fences import MemoryFence, rules
from holdfast.fences.floors import Floor, raised, unknown
from holdfast.fences.rules import Credential, Mark

T = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("token", "highest", "lost"),
    [
        (T - rules.MONTH, T, False),
        (T - rules.MONTH - 1, T, True),
        (17, T, True),  # from a time to a counter: another store
        (1, 100, False),  # a young counter, and an old holder
        (1, 10_001, False),
        (1, 10_002, True),  # begun again
        (624, 20_000, True),
        (1250, 20_000, False),  # late, but of the same counter
        (5_000, 20_000, False),
    ],
)
def test_when_a_store_has_lost_its_memory(token: int, highest: int, lost: bool) -> None:
    refused = rules.refusal("x", Mark(highest), Credential(token), False)
    assert refused is not None
    assert refused.reason == ("store-lost-memory" if lost else "stale")
    assert ("lost its memory" in str(refused)) is lost


def test_readers_may_look_twice_at_a_single_use_fence() -> None:
    given = Credential(34, "redis:a/b", reader=True)
    assert rules.refusal("x", Mark(34, "redis:a/b"), given, True) is None
    assert rules.refusal("x", Mark(35, "redis:a/b"), given, True) is not None


@pytest.mark.parametrize(
    ("lock", "least"), [("", 100), ("redis:a/x", 100), ("etcd:a/x", 7), ("zookeeper:a/x", 5)]
)
def test_what_counts_for_a_resource_that_was_forgotten(lock: str, least: int) -> None:
    known = raised({"redis:a": Floor(40)}, [Mark(100, "redis:a/x"), Mark(50, "redis:a/y")])
    known = raised(known, [Mark(7, "etcd:a/x"), Mark(5)])
    assert unknown(known, Credential(1, lock)) == Mark(least)
    assert unknown({}, Credential(1, lock)) == Mark()


def test_a_memory_that_is_only_compared_with_stays_as_it_is() -> None:
    fence = MemoryFence()
    fence.guard("x", 34)
    assert fence.prune(1e-9) == 1
    assert fence.prune(1e-9) == 0
    assert fence.highest("x") == 0


def test_an_old_floor_does_not_fall(site: Site) -> None:
    """A mark that is pruned later with a lower token does not lower it. (In a cluster: in one slot.)"""
    if not site.prunes:
        return  # it has nothing to forget
    for resource, token in (("{s}x", 34), ("{s}y", 50)):
        site.write(resource, "a", token)
    time.sleep(0.005)
    assert site.prune() == 2
    site.reset("{s}z", to=10)
    time.sleep(0.005)
    assert site.prune() == 1
    for resource in ("{s}x", "{s}y", "{s}z", "{s}new"):
        with pytest.raises(Exception, match="50"):
            site.write(resource, "late", 49)


def test_a_reader_begins_at_the_floor_of_its_realm(site: Site) -> None:
    """A floor of 5 in one store's tokens, and of 100 in another's."""
    if not (site.prunes and site.readers):
        return  # it has nothing to forget
    site.write("{s}x", "a", StoreLease("redis", 100))
    site.write("{s}other", "a", StoreLease("etcd", 5))
    time.sleep(0.005)
    assert site.prune() == 2
    with pytest.raises(holdfast.StaleToken):
        site.show("{s}x", StoreLease("redis", 50, reader=True))
    site.show("{s}x", StoreLease("etcd", 6, reader=True))
    with pytest.raises(holdfast.StaleToken, match="belongs to the lock"):  # a reader names it, too
        site.write("{s}x", "late", StoreLease("redis", 101))
    with pytest.raises(holdfast.StaleToken):
        site.write("{s}x", "late", StoreLease("etcd", 5))
    site.write("{s}x", "c", StoreLease("etcd", 7))
    assert site.highest("{s}x") == 7


def test_what_a_bare_number_left_behind_counts_for_every_store(site: Site) -> None:
    if not site.prunes:
        return  # it has nothing to forget
    site.write("x", "a", 100)
    time.sleep(0.005)
    assert site.prune() == 1
    for resource in ("x", "{x}y"):
        with pytest.raises(holdfast.StaleToken):
            site.write(resource, "late", StoreLease("etcd", 50))
    site.write("x", "b", StoreLease("etcd", 100))


def test_a_resource_keeps_its_lock_whatever_bare_numbers_come(site: Site) -> None:
    site.write("x", "a", StoreLease("redis", 10))
    site.write("x", "b", 11)  # a bare number is taken at its word, and changes no owner
    with pytest.raises(holdfast.StaleToken, match="belongs to the lock"):
        site.write("x", "c", StoreLease("etcd", 12))
    site.write("y", "a", 10)
    site.write("y", "b", StoreLease("redis", 10))  # the same holder, who now says who he is
    with pytest.raises(holdfast.StaleToken, match="belongs to the lock"):
        site.write("y", "c", StoreLease("etcd", 12))
    site.write("y", "d", StoreLease("redis", 11))
    assert (site.highest("x"), site.highest("y")) == (11, 11)
