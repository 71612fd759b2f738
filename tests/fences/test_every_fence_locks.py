"""The rules of locks, on every fence: whose a resource is, and whose a token."""

from __future__ import annotations

import pytest

import holdfast
from fences.scenes import Slotless, StoreLease, refused
from fences.sites import Site


def test_a_lease_brings_its_lock_along(site: Site) -> None:
    with holdfast.connect("memory://") as locks:
        first = locks.lock("a").acquire()
        site.write("x", "a", first)
        other = locks.lock("b").acquire()
        assert other.token > first.token
        with refused("other-lock", first.token):
            site.write("x", "b", other)
        first.release()
        second = locks.lock("a").acquire()
        site.write("x", "c", second)
        site.write("x", "d", second.token)  # a bare number is taken at its word
        with refused("stale", second.token):
            site.write("x", "e", first)
        with refused("other-lock", second.token):
            site.write("x", "f", other)
        assert site.read("x") == "d"


def test_a_resource_belongs_to_the_first_lock_that_is_named(site: Site) -> None:
    with holdfast.connect("memory://") as locks:
        site.write("x", "a", 5)  # nobody in particular
        lease = locks.lock("a").acquire()
        site.write("x", "b", lease)
        with refused("other-lock", lease.token):
            site.write("x", "c", locks.lock("b").acquire())


def test_the_same_name_elsewhere_is_another_lock(site: Site) -> None:
    ours = holdfast.connect("memory://", namespace="a")
    theirs = holdfast.connect("memory://", namespace="b")
    with ours, theirs:
        lease = ours.lock("x").acquire()
        site.write("x", "a", lease)
        with refused("other-lock", lease.token):
            site.write("x", "b", theirs.lock("x").acquire())


def test_a_semaphores_lease_stands_for_its_slot(site: Site) -> None:
    with holdfast.connect("memory://") as locks:
        pool = locks.semaphore("pool", permits=2)
        low, high = pool.acquire(), pool.acquire()
        site.write(f"x{high.slot}", "a", high)
        site.write(f"x{low.slot}", "b", low)  # no higher one shuts it out: it is another slot's
        with refused("other-lock", high.token):
            site.write(f"x{high.slot}", "c", low)
        high.release()
        higher = pool.acquire()
        assert higher.slot == high.slot
        site.write(f"x{high.slot}", "d", higher)
        with refused("stale", higher.token):
            site.write(f"x{high.slot}", "e", high)
        site.write(f"x{low.slot}", "f", low)
        assert (site.read(f"x{high.slot}"), site.read(f"x{low.slot}")) == ("d", "f")
        # However a lock is called, it is not a slot of another one.
        with refused("other-lock", low.token):
            site.write(f"x{low.slot}", "g", locks.lock(f"pool#{low.slot}").acquire())


def test_a_semaphore_whose_permits_change_stays_the_same_lock(site: Site) -> None:
    with holdfast.connect("memory://") as locks:
        first = locks.semaphore("pool", permits=1).acquire()
        assert (first.slot, first.shared) == (0, False)
        site.write("x", "a", first)
        first.release()
        more = locks.semaphore("pool", permits=2)
        leases = [more.acquire(), more.acquire()]
        second, other = sorted(leases, key=lambda lease: lease.slot or 0)
        site.write("x", "b", second)
        with refused("stale", second.token):
            site.write("x", "c", first)
        with refused("other-lock", second.token):
            site.write("x", "d", other)
        second.release()
        other.release()
        third = locks.semaphore("pool", permits=1).acquire()
        site.write("x", "e", third)
        with refused("stale", third.token):
            site.write("x", "f", second)


def test_a_semaphores_token_without_a_slot_is_refused(site: Site) -> None:
    with pytest.raises(holdfast.GuaranteeError, match="slot"):
        site.write("x", "a", Slotless(10))
    assert site.highest("x") == 0


def test_a_lease_of_the_next_century_is_refused(site: Site) -> None:
    with pytest.raises(holdfast.GuaranteeError, match="century"):
        site.write("x", "a", StoreLease("etcd", 2**62))
    assert site.highest("x") == 0


def test_a_reset_is_the_way_out(site: Site) -> None:
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("a").acquire()
        site.write("x", "a", lease)
        with refused("other-lock", lease.token):
            site.write("x", "b", StoreLease("etcd", 10))
        assert site.reset("x") == lease.token
        site.write("x", "b", StoreLease("etcd", 10))
        assert site.highest("x") == 10
        assert site.reset("x", to=20) == 10
        with refused("stale", 20):
            site.write("x", "c", 19)
