"""The rules of readers, on every fence that takes their leases."""

from __future__ import annotations

import time

import pytest

import holdfast
from fences.scenes import elsewhere, refused
from fences.sites import Site


def test_a_readers_lease_does_not_write(site: Site) -> None:
    if not site.writes:
        return  # SQL's own test is that of update()
    with holdfast.connect("memory://") as locks:
        book = locks.rwlock("book")
        with book.write() as writer:
            site.write("x", "a", writer)
        with book.read() as reader:
            for resource in ("x", "new"):
                with pytest.raises(Exception, match=r"a reader's lease does not write|403"):
                    site.write(resource, "b", reader)
        assert (site.read("x"), site.highest("x")) == ("a", writer.token)
        assert (site.read("new"), site.highest("new")) == (None, 0)


def test_readers_are_compared_with_writers_and_not_with_each_other(site: Site) -> None:
    if not site.readers:
        return
    with holdfast.connect("memory://") as locks:
        book = locks.rwlock("book")
        with book.write() as writer:
            site.write("x", "a", writer)
        first, second = book.read().acquire(), book.read().acquire()
        site.show("x", second)
        site.show("x", first)  # it holds as well
        site.show("x", second)
        assert (site.read("x"), site.highest("x")) == ("a", writer.token)
        first.release(), second.release()
        with book.write() as writer:
            site.write("x", "b", writer)
        with refused("stale", writer.token):
            site.show("x", second)
        with book.read() as later:
            site.show("x", later)
        with refused("other-lock", writer.token):
            site.show("x", locks.rwlock("other").read().acquire())


def test_a_late_writer_does_not_write_under_a_reader(site: Site) -> None:
    """The writer's lease is over, and a reader has shown a newer one, and no newer writer has come."""
    if not site.readers:
        return
    with holdfast.connect("memory://") as locks:
        book = locks.rwlock("book")
        late = book.write().acquire()
        site.write("x", "a", late)
        site.write("x", "b", late)
        late.release()
        reader = book.read().acquire()
        site.show("x", reader)
        with elsewhere(site) as again:
            for one in (site, again):
                with refused("stale", reader.token):
                    one.write("x", "late", late)
                with refused("stale", reader.token):
                    one.write("x", "late", late.token)
            site.show("x", reader)
            assert site.read("x") == "b"
            reader.release()
            with book.write() as writer:
                site.write("x", "c", writer)
                again.write("x", "d", writer)
        assert (site.read("x"), site.highest("x")) == ("d", writer.token)


def test_an_earlier_reader_does_not_take_the_place_of_a_later_one(site: Site) -> None:
    """Readers show their leases in any order; the highest of them is what counts for writers."""
    if not site.readers:
        return
    with holdfast.connect("memory://") as locks:
        book = locks.rwlock("book")
        with book.write() as writer:
            site.write("x", "a", writer)
        first, second = book.read().acquire(), book.read().acquire()
        site.show("x", second)
        with elsewhere(site) as again:
            for one in (site, again):  # another process notes, too, that the mark is in use
                one.show("x", first)
                with refused("stale", second.token):
                    one.write("x", "late", first.token)
        assert site.read("x") == "a"


def test_a_reader_at_a_resource_that_nobody_has_written_to(site: Site) -> None:
    if not (site.readers and site.prunes):
        return  # an object has to be there to remember anything
    with holdfast.connect("memory://") as locks:
        book = locks.rwlock("book")
        late = book.write().acquire()
        late.release()
        with book.read() as reader:
            site.show("new", reader)
            assert site.highest("new") == 0
            with refused("stale", reader.token):
                site.write("new", "late", late)
        with book.write() as writer:
            site.write("new", "a", writer)


def test_what_a_reader_has_shown_is_pruned_into_the_floors(site: Site) -> None:
    if not (site.readers and site.prunes):
        return  # it has nothing to forget
    with holdfast.connect("memory://") as locks:
        book = locks.rwlock("book")
        late = book.write().acquire()
        late.release()
        first, second = book.read().acquire(), book.read().acquire()
        site.show("{x}", second)
        time.sleep(0.005)
        assert site.prune() == 1
        with refused("stale", second.token):
            site.write("{x}", "late", late)
        site.show("{x}", first)  # readers do not shut each other out
        with refused("stale", second.token):
            site.write("{x}y", "late", late)


def test_a_reader_who_goes_on_reading_is_not_shut_out_by_prune(site: Site) -> None:
    if not (site.readers and site.prunes):
        return
    with holdfast.connect("memory://") as locks:
        late = locks.rwlock("book").write().acquire()
        late.release()
        reader, other = locks.rwlock("book").read().acquire(), locks.lock("other").acquire()
        site.show("{s}x", reader)
        site.write("{s}z", "a", other)
        began = time.monotonic()
        time.sleep(site.grain * 1.5 + 0.5)
        with elsewhere(site) as again:  # who does not know that it was shown
            again.show("{s}x", reader)
        assert site.prune(time.monotonic() - began - 0.1) == 1
        site.show("{s}x", reader)
        with refused("stale", reader.token):
            site.write("{s}x", "late", late)
        site.show("{s}y", reader)  # new to the fence
