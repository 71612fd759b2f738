"""What the tests of every fence share: refusals, leases of other stores, and two holders in a row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

import holdfast
from fences.sites import Site

DAY = 86400 * 10**6
"""A day in tokens, as most stores make them: times in µs."""
WORDS = {
    "stale": "acquire again",
    "used": "takes each token once",
    "other-lock": "belongs to the lock",
    "store-lost-memory": "the lock store has lost its memory",
}


@contextmanager
def refused(reason: str, highest: int) -> Iterator[None]:
    """The body is refused for this reason, by a fence that has seen this token."""
    with pytest.raises(holdfast.StaleToken) as caught:
        yield
    assert caught.value.reason == reason
    assert caught.value.highest == highest
    assert WORDS[reason] in str(caught.value)


@contextmanager
def elsewhere(site: Site) -> Iterator[Site]:
    """Yields a site as another process has it; the same one where no other process can."""
    if not site.restarts:
        yield site
        return
    other = site.again()
    try:
        yield other
    finally:
        other.close()


def two_leases(lock: holdfast.Lock) -> tuple[holdfast.Lease, holdfast.Lease]:
    """Returns a lease that is over, and the next one, which is held."""
    late = lock.acquire()
    late.release()
    return late, lock.acquire()


def run_at_once(works: Iterable[Callable[[], None]]) -> None:
    """Runs each in a thread of its own; raises the first error of any."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


class Tokens:
    """A lease like another one, with a token from before."""

    kind = "lock"
    shared = False
    name = "a"
    owner = "o"

    def __init__(self, like: holdfast.Lease, token: int) -> None:
        self.lock_id = like.lock_id
        self.token = token


class StoreLease:
    """A lease on the lock `a` of one store or another."""

    name = "a"
    owner = "o"
    kind = "lock"

    def __init__(self, store: str, token: int, reader: bool = False) -> None:
        self.lock_id = f"{store}:holdfast/a"
        self.token = token
        self.shared = reader
        if reader:
            self.kind = "rwlock"


class Slotless(StoreLease):
    """A semaphore's lease, of a store that cannot say which slot it has."""

    kind = "semaphore"
    slot = None

    def __init__(self, token: int) -> None:
        super().__init__("etcd", token)
        self.shared = True
