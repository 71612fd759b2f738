"""The rules, on every fence that there is."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import holdfast
from fences.every import SITES
from fences.sites import Site

T = 1_800_000_000_000_000
"""A token as most stores make it: a time in µs."""
DAY = 86400 * 10**6
WORDS = {
    "stale": "acquire again",
    "used": "takes each token once",
    "other-lock": "belongs to the lock",
    "store-lost-memory": "the lock store has lost its memory",
}


@contextmanager
def refused(reason: str, highest: int) -> Iterator[None]:
    with pytest.raises(holdfast.StaleToken) as caught:
        yield
    assert caught.value.reason == reason
    assert caught.value.highest == highest
    assert WORDS[reason] in str(caught.value)


def test_lower_is_refused_equal_and_higher_pass(site: Site) -> None:
    site.write("x", "a", 33)
    assert (site.read("x"), site.highest("x")) == ("a", 33)
    site.write("x", "b", 33)  # the same holder's next write
    assert site.read("x") == "b"
    site.write("x", "c", 34)
    assert (site.read("x"), site.highest("x")) == ("c", 34)
    with refused("stale", 34):
        site.write("x", "d", 33)
    assert (site.read("x"), site.highest("x")) == ("c", 34)
    site.write("x", "e", 34)
    assert site.read("x") == "e"


def test_the_refusal_says_what_happened_and_what_to_do(site: Site) -> None:
    site.write("x", "a", 34)
    with pytest.raises(holdfast.StaleToken) as caught:
        site.write("x", "b", 33)
    error = caught.value
    assert error.token == 33
    assert error.resource.endswith("x")
    for word in ("33", "34", "acquire again"):
        assert word in str(error)


def test_tokens_keep_all_their_digits(site: Site) -> None:
    """2^53 and more, where doubles lose some."""
    for near in (2**53, T, 2**63 - 3):
        resource = f"x{near}"
        site.write(resource, "a", near + 1)
        with refused("stale", near + 1):
            site.write(resource, "b", near)
        site.write(resource, "c", near + 2)
        assert site.highest(resource) == near + 2


def test_more_digits_is_higher(site: Site) -> None:
    site.write("x", "a", 999)
    site.write("x", "b", 1000)
    with refused("stale", 1000):
        site.write("x", "c", 999)


def test_single_use(kind: str, tmp_path: Path) -> None:
    site = SITES[kind](tmp_path, single_use=True)
    try:
        site.write("x", "a", 33)
        with refused("used", 33):
            site.write("x", "b", 33)
        with refused("stale", 33):
            site.write("x", "b", 32)
        site.write("x", "c", 34)
        assert site.read("x") == "c"
    finally:
        site.close()


def test_single_use_is_one_use_among_many_at_once(kind: str, tmp_path: Path) -> None:
    site = SITES[kind](tmp_path, single_use=True)
    passed: list[str] = []
    errors: list[BaseException] = []
    together = threading.Barrier(6)

    def writer(value: str) -> None:
        try:
            together.wait(60)
            with suppress(holdfast.StaleToken):
                site.write("x", value, 34)
                passed.append(value)
        except BaseException as error:
            errors.append(error)

    try:
        site.write("x", "before", 33)
        threads = [threading.Thread(target=writer, args=(f"w{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not errors, errors[0]
        assert passed == [site.read("x")]
    finally:
        site.close()


def test_resources_do_not_know_of_each_other(site: Site) -> None:
    names = [f"row {n}" for n in range(20)] + ["Row 1", "row 1 ", "rów 1", "row%201", "{row}1"]
    for number, name in enumerate(names, 1):
        site.write(name, name, number * 10)
    for number, name in enumerate(names, 1):
        with refused("stale", number * 10):
            site.write(name, "late", number * 10 - 1)
        assert site.read(name) == name


def test_far_below_is_a_store_that_lost_its_memory(site: Site) -> None:
    site.write("x", "a", T)
    with refused("store-lost-memory", T):
        site.write("x", "b", 17)
    with refused("store-lost-memory", T):
        site.write("x", "b", T - 40 * DAY)
    with refused("stale", T):
        site.write("x", "b", T - DAY)
    assert site.read("x") == "a"


def test_the_memory_survives_a_restart(site: Site) -> None:
    if not site.restarts:
        return  # it is a promise of the others
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("a").acquire()
        other = locks.lock("b").acquire()
        site.write("x", "a", lease)
        again = site.again()
        with refused("stale", lease.token):
            again.write("x", "b", lease.token - 1)
        with refused("other-lock", lease.token):
            again.write("x", "b", other)
        again.write("x", "c", lease)
        assert (site.read("x"), again.highest("x")) == ("c", lease.token)
        again.close()


def test_a_late_writer_whose_rival_is_another_process(site: Site) -> None:
    """Whatever his own fence remembers of his last write, it is the resource that decides."""
    if not site.restarts:
        return  # others have no way to it
    rival = site.again()
    for late, newer in ((33, 34), (35, 36)):
        site.write("x", f"a {late}", late)
        site.write("x", f"b {late}", late)
        rival.write("x", f"c {newer}", newer)
        with refused("stale", newer):
            site.write("x", "late", late)
        assert (site.read("x"), site.highest("x")) == (f"c {newer}", newer)
    with holdfast.connect("memory://") as locks:
        first = locks.lock("y").acquire()
        site.write("y", "a", first)
        site.write("y", "b", first)
        first.release()
        second = locks.lock("y").acquire()
        rival.write("y", "c", second)
        with refused("stale", second.token):
            site.write("y", "late", first)
        assert site.read("y") == "c"
    rival.close()


def test_crash_between_check_and_write(site: Site) -> None:
    site.write("x", "a", 33)
    site.crash("x", "b", 34)
    assert site.read("x") == "a"
    # Neither; or, where what is guarded cannot be undone, the mark alone, which is on the safe side.
    assert site.highest("x") == (33 if site.transactions else 34)
    site.write("x", "c", 34)
    assert site.read("x") == "c"
    site.crash("y", "b", 34)
    assert site.read("y") is None
    site.write("y", "c", 35)


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


def test_a_semaphores_token_without_a_slot_is_refused(site: Site) -> None:
    with pytest.raises(holdfast.GuaranteeError, match="slot"):
        site.write("x", "a", Slotless(10))
    assert site.highest("x") == 0


def test_a_pruned_token_does_not_come_back(site: Site) -> None:
    if not site.prunes:
        return  # it has nothing to forget
    with holdfast.connect("memory://") as locks:
        old = locks.lock("a").acquire()
        old.release()
        newer = locks.lock("a").acquire()
        site.write("x", "a", newer)
        time.sleep(0.005)  # older than the grain of a file's time
        assert site.prune() == 1
        assert site.highest("x") == 0
        with refused("stale", newer.token):
            site.write("x", "b", old)
        with refused("stale", newer.token):
            site.write("x", "b", old.token)
        again = site.again() if site.restarts else site
        with refused("stale", newer.token):
            again.write("{x} never seen", "b", old)  # in the slot of x, if there are such
        site.write("x", "c", newer)  # it still holds
        assert (site.read("x"), site.highest("x")) == ("c", newer.token)
        if again is not site:
            again.close()


def test_a_pruned_mark_keeps_no_other_counter_out(site: Site) -> None:
    """10^15 of one store says nothing about 10 of another."""
    if not site.prunes:
        return  # it has nothing to forget
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("a").acquire()
        site.write("x", "a", lease)
        time.sleep(0.005)
        site.prune()
        site.write("y", "a", Other(10))
        site.write("y", "b", Other(11))
        with refused("stale", 11):
            site.write("y", "c", Other(10))
        with refused("store-lost-memory", lease.token):
            site.write("{x}z", "a", 10)  # a bare number may be anybody's
        time.sleep(0.005)
        site.prune()
        with refused("stale", 11):
            site.write("y", "c", Other(10))


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
        again = site.again() if site.restarts else site
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
        if again is not site:
            again.close()


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
        again = site.again() if site.restarts else site
        for one in (site, again):  # another process notes, too, that the mark is in use
            one.show("x", first)
            with refused("stale", second.token):
                one.write("x", "late", first.token)
        assert site.read("x") == "a"
        if again is not site:
            again.close()


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


def test_an_overwrite_without_the_fence_does_not_let_an_old_token_in(site: Site) -> None:
    site.write("x", "a", 34)
    site.overwrite("x", "by somebody else")
    with pytest.raises((holdfast.StaleToken, holdfast.GuaranteeError)):
        site.write("x", "late", 33)
    assert site.read("x") == "by somebody else"
    if site.highest("x") == 0:  # its mark went with it, which was noticed
        site.reset("x", to=34)
        with refused("stale", 34):
            site.write("x", "late", 33)
    site.write("x", "b", 34)
    assert (site.read("x"), site.highest("x")) == ("b", 34)


def test_a_holder_who_goes_on_writing_is_not_shut_out_by_prune(site: Site) -> None:
    """It has held for longer than marks are kept, so tokens of other locks that are newer than its own
    become floors. (In a cluster: in one slot.)"""
    if not site.prunes:
        return  # it has nothing to forget
    with holdfast.connect("memory://") as locks:
        stale = locks.lock("leader").acquire()
        stale.release()
        leader, other = locks.lock("leader").acquire(), locks.lock("other").acquire()
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
        again = site.again() if site.restarts else site  # who does not know that it was shown
        again.show("{s}x", reader)
        if again is not site:
            again.close()
        assert site.prune(time.monotonic() - began - 0.1) == 1
        site.show("{s}x", reader)
        with refused("stale", reader.token):
            site.write("{s}x", "late", late)
        site.show("{s}y", reader)  # new to the fence


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


def test_a_lease_of_the_next_century_is_refused(site: Site) -> None:
    with pytest.raises(holdfast.GuaranteeError, match="century"):
        site.write("x", "a", Other(2**62))
    assert site.highest("x") == 0


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


class Tokens:
    """A lease like another one, with a token from before."""

    kind = "lock"
    shared = False
    name = "a"
    owner = "o"

    def __init__(self, like: holdfast.Lease, token: int) -> None:
        self.lock_id = like.lock_id
        self.token = token


class Other:
    """A lease of a store that counts from one."""

    name = "a"
    owner = "o"
    kind = "lock"
    shared = False
    lock_id = "etcd:holdfast/a"

    def __init__(self, token: int) -> None:
        self.token = token


class Slotless(Other):
    """A semaphore's, of a store that cannot say which slot it has."""

    kind = "semaphore"
    shared = True
    slot = None


def test_a_reset_is_the_way_out(site: Site) -> None:
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("a").acquire()
        site.write("x", "a", lease)
        with refused("other-lock", lease.token):
            site.write("x", "b", Other(10))
        assert site.reset("x") == lease.token
        site.write("x", "b", Other(10))
        assert site.highest("x") == 10
        assert site.reset("x", to=20) == 10
        with refused("stale", 20):
            site.write("x", "c", 19)


@pytest.mark.parametrize("token", [0, -1, 2**63, True, 1.0, "7", None, object()])
def test_what_is_no_token_is_refused_before_anything_is_sent(site: Site, token: object) -> None:
    with pytest.raises(holdfast.ConfigError, match="fencing token"):
        site.write("x", "a", token)  # type: ignore[arg-type]
    assert site.highest("x") == 0


def test_the_fence_can_be_proved_in_its_place(site: Site) -> None:
    site.verify()
    site.verify()


def test_fifty_writers_with_random_delays(site: Site) -> None:
    tokens = list(range(1, 51))
    dice = random.Random(6)
    dice.shuffle(tokens)
    accepted: list[tuple[float, float, int]] = []
    errors: list[BaseException] = []

    def writer(token: int, delays: list[float]) -> None:
        try:
            for turn, delay in enumerate(delays):
                time.sleep(delay)
                began = time.monotonic()
                with suppress(holdfast.StaleToken):
                    site.write("x", f"{token} {turn}", token)
                    accepted.append((began, time.monotonic(), token))
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=writer, args=(token, [dice.random() * 0.05 for _ in range(3)]))
        for token in tokens
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not errors, errors[0]
    assert site.read("x") == "50 2"
    assert site.highest("x") == 50
    for began, _, token in accepted:
        over = [higher for _, ended, higher in accepted if ended < began and higher > token]
        assert not over, f"{token} was accepted after {max(over)}"
