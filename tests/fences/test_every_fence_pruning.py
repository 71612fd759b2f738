"""The rules of what is forgotten, on every fence that forgets: floors, and how they are reset."""

from __future__ import annotations

import time

import holdfast
from fences.scenes import DAY, StoreLease, Tokens, elsewhere, refused, two_leases
from fences.sites import Site


def test_a_pruned_token_does_not_come_back(site: Site) -> None:
    if not site.prunes:
        return  # it has nothing to forget
    with holdfast.connect("memory://") as locks:
        old, newer = two_leases(locks.lock("a"))
        site.write("x", "a", newer)
        time.sleep(0.005)  # older than the grain of a file's time
        assert site.prune() == 1
        assert site.highest("x") == 0
        with refused("stale", newer.token):
            site.write("x", "b", old)
        with refused("stale", newer.token):
            site.write("x", "b", old.token)
        with elsewhere(site) as again, refused("stale", newer.token):
            again.write("{x} never seen", "b", old)  # in the slot of x, if there are such
        site.write("x", "c", newer)  # it still holds
        assert (site.read("x"), site.highest("x")) == ("c", newer.token)


def test_a_pruned_mark_keeps_no_other_counter_out(site: Site) -> None:
    """10^15 of one store says nothing about 10 of another."""
    if not site.prunes:
        return  # it has nothing to forget
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("a").acquire()
        site.write("x", "a", lease)
        time.sleep(0.005)
        site.prune()
        site.write("y", "a", StoreLease("etcd", 10))
        site.write("y", "b", StoreLease("etcd", 11))
        with refused("stale", 11):
            site.write("y", "c", StoreLease("etcd", 10))
        with refused("store-lost-memory", lease.token):
            site.write("{x}z", "a", 10)  # a bare number may be anybody's
        time.sleep(0.005)
        site.prune()
        with refused("stale", 11):
            site.write("y", "c", StoreLease("etcd", 10))


def test_a_holder_who_goes_on_writing_is_not_shut_out_by_prune(site: Site) -> None:
    """It has held for longer than marks are kept, so tokens of other locks that are newer than its own
    become floors. (In a cluster: in one slot.)"""
    if not site.prunes:
        return  # it has nothing to forget
    with holdfast.connect("memory://") as locks:
        stale, leader = two_leases(locks.lock("leader"))
        other = locks.lock("other").acquire()
        site.write("{s}x", "a", leader)
        site.write("{s}z", "a", other)
        began = time.monotonic()
        time.sleep(site.grain * 1.5 + 0.5)
        site.write("{s}x", "b", leader)
        assert site.prune(time.monotonic() - began - 0.1) == 1
        site.write("{s}x", "c", leader)
        site.write("{s}y", "a", leader)  # new to the fence
        assert (site.read("{s}x"), site.read("{s}y")) == ("c", "a")
        other.release()
        newer = locks.lock("other").acquire()
        for resource in ("{s}z", "{s}new"):
            with refused("stale", other.token):
                site.write(resource, "late", Tokens(other, other.token - 1))
        site.write("{s}z", "b", newer)
        with refused("stale", leader.token):
            site.write("{s}x", "late", stale)


def test_a_number_that_no_clock_has_made_does_not_become_a_floor(site: Site) -> None:
    if not site.prunes:
        return  # it has no floors
    site.write("{s}bad", "a", 2**63 - 1)
    site.write("{s}good", "a", 5)
    time.sleep(0.005)
    assert site.prune() == 1
    site.verify()
    site.write("{s}new", "a", 6)
    assert site.reset("{s}bad") == 2**63 - 1
    site.write("{s}bad", "b", 6)


def test_floors_are_reset_for_one_lock_and_for_all(site: Site) -> None:
    if not site.prunes:
        return  # it has no floors
    far = time.time_ns() // 1000 + 90 * 365 * DAY
    with holdfast.connect("memory://") as locks:
        site.write("{s}bad", "a", far)  # somebody's mistake
        time.sleep(0.005)
        assert site.prune() == 1
        one, other = locks.lock("one").acquire(), locks.lock("other").acquire()
        for lease in (one, other):
            with refused("store-lost-memory", far):
                site.write("{s}new", "a", lease)
        site.reset_floors(one, to=one.token)
        site.write("{s}x", "a", one)
        with refused("stale", one.token):
            site.write("{s}y", "late", Tokens(one, one.token - 1))
        time.sleep(0.005)
        assert site.prune() == 1
        site.write("{s}y", "a", one)  # prune keeps what a person has set
        with refused("store-lost-memory", far):
            site.write("{s}new", "a", other)
        site.reset_floors(to=one.token)
        site.write("{s}new", "a", other)
        with refused("stale", one.token):
            site.write("{s}newer", "a", one.token - 1)
        site.verify()
