"""Fixtures for pytest: locks in memory, a clock to move, and leases that are lost on demand.

It is a package of its own, since pytest imports it at each start. Holdfast itself is imported when a
test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, overload

import pytest

if TYPE_CHECKING:
    import holdfast
    import holdfast.aio

_numbers = count(1)


@pytest.fixture
def holdfast_clock() -> holdfast.ManualClock:
    """A clock that stands still until the test moves it: `holdfast_clock.advance(31.0)`."""
    import holdfast

    return holdfast.ManualClock()


@pytest.fixture
def holdfast_url() -> str:
    """The URL of an empty store in memory, another one for each test.

    A manager that the test connects to it by itself needs `clock=holdfast_clock`, too, if it is to
    share a store with `holdfast_locks`.
    """
    return f"memory://pytest-{next(_numbers)}"


@pytest.fixture
def holdfast_locks(
    holdfast_url: str, holdfast_clock: holdfast.ManualClock
) -> Iterator[holdfast.Locks]:
    """A manager for blocking code, on `holdfast_url`, whose leases count by `holdfast_clock`."""
    import holdfast

    with holdfast.connect(holdfast_url, clock=holdfast_clock) as locks:
        yield locks


@pytest.fixture
def holdfast_aio(
    holdfast_url: str, holdfast_clock: holdfast.ManualClock
) -> Callable[[], holdfast.aio.Locks]:
    """A function that returns a manager for asyncio: `async with holdfast_aio() as locks:`.

    It is on the same store as `holdfast_locks`, and counts by the same clock.
    """
    import holdfast.aio

    return lambda: holdfast.aio.connect(holdfast_url, clock=holdfast_clock)


class Loser:
    """A function that makes a lease lost, as if somebody had released it by force."""

    def __init__(self, url: str, clock: holdfast.ManualClock) -> None:
        self._place = url, clock

    @overload
    def __call__(
        self, lease: holdfast.Lease | holdfast.MultiLease, locks: holdfast.Locks | None = None
    ) -> None: ...

    @overload
    def __call__(
        self,
        lease: holdfast.aio.Lease | holdfast.aio.MultiLease,
        locks: holdfast.Locks | None = None,
    ) -> Coroutine[Any, Any, None]: ...

    def __call__(self, lease: Any, locks: holdfast.Locks | None = None) -> Any:
        """Makes `lease` lost; its holder has been told when this returns. In asyncio, await it.

        The other holders of a semaphore, and other readers, lose theirs, too, but learn of it at their
        next renewal: move the clock. `locks` is a blocking manager of the lease's store, where that is
        not `holdfast_url`.
        """
        from holdfast import LeaseLost, aio, connect

        names = [one.name for one in lease.leases.values()] if hasattr(lease, "leases") else []
        if locks is not None:
            for name in names or [lease.name]:
                locks.force_release(name)
        else:
            url, clock = self._place
            with connect(url, clock=clock) as manager:
                for name in names or [lease.name]:
                    manager.force_release(name)

        async def renew() -> None:
            try:
                await lease.renew()
            except LeaseLost:
                return
            raise AssertionError(_STILL_HELD)

        if isinstance(lease, aio.Lease | aio.MultiLease):
            return renew()
        try:
            lease.renew()  # by which the holder is told, on every store
        except LeaseLost:
            return None
        raise AssertionError(_STILL_HELD)


_STILL_HELD = (
    "the lease is still held: it is of another store than holdfast_url; give a manager of that one, "
    "as in holdfast_lose(lease, locks)"
)


@pytest.fixture
def holdfast_lose(holdfast_url: str, holdfast_clock: holdfast.ManualClock) -> Loser:
    """A function that makes a lease lost: `holdfast_lose(lease)`; in asyncio, await it."""
    return Loser(holdfast_url, holdfast_clock)
