"""Locks that go by the interfaces of `threading.Lock` and `threading.RLock`, on any store.

They keep apart threads, processes and machines. What differs from `threading`: a lease may be lost.
Leaving `with`, and `release()`, raise `LeaseLost` then.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Unpack

import holdfast

from ..errors import BackendUnavailable, ConfigError, LeaseLost, LockError, LockNotOwned
from ..options import LockKeywords


class ThreadingLock:
    """A lock as `threading.Lock` is: any thread may release what another has acquired."""

    _unacquired = "release unlocked lock"

    def __init__(self, locks: holdfast.Locks, name: str, **options: Unpack[LockKeywords]) -> None:
        self.name = name
        self._locks = locks
        self._lock = self._made(locks, name, options)
        self._mutex = threading.RLock()  # a signal's handler may release it
        self._leases: list[tuple[int, holdfast.Lease]] = []
        """The leases that are acquired, and by which thread: one, unless an earlier one was lost."""

    @staticmethod
    def _made(locks: holdfast.Locks, name: str, options: LockKeywords) -> holdfast.Lock:
        return locks.lock(name, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def lease(self) -> holdfast.Lease | None:
        """The lease that this thread, or else another one, has acquired; with its fencing token."""
        with self._mutex:
            place = self._place()
            return None if place is None else self._leases[place][1]

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Returns True once it is acquired; False if it is not to be had at once, or within `timeout`.

        A `timeout` of -1 waits for ever.
        """
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        if timeout > threading.TIMEOUT_MAX:
            raise OverflowError("timeout value is too large")
        lease: holdfast.Lease | None
        if not blocking:
            lease = self._lock.try_acquire()
        elif timeout == -1:
            lease = self._lock.acquire(None)
        else:
            lease = self._lock.try_acquire(timeout)
        if lease is None:
            return False
        acquired = None
        try:
            acquired = (threading.get_ident(), lease)
            self._note(acquired)
        except BaseException:  # by a signal's handler: nobody would release it
            self._give_back(lease, acquired)
            raise
        return True

    def release(self) -> None:
        """Releases it; raises `RuntimeError` if it is not acquired, `LeaseLost` if it was lost.

        If the store does not answer, it stays acquired, and its release may be tried again.
        """
        acquired = self._pop()
        lease = acquired[1]
        try:
            released = lease.release()
        except BackendUnavailable:
            with self._mutex:
                self._leases.append(acquired)
            raise
        if not released:
            raise _lost(lease)

    def locked(self) -> bool:
        """Returns whether anybody holds it, on any machine."""
        return self._locks.inspect(self.name).held

    def __enter__(self) -> bool:
        lease = self._lock.acquire(None)
        acquired = None
        try:
            acquired = (threading.get_ident(), lease)
            self._note(acquired)
            lease.__enter__()
        except BaseException:
            self._give_back(lease, acquired)
            raise
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pop()[1].__exit__(kind, error, trace)

    def _note(self, acquired: tuple[int, holdfast.Lease]) -> None:
        """Notes the lease that a thread has acquired."""
        with self._mutex:
            self._leases.append(acquired)

    def _give_back(
        self, lease: holdfast.Lease, acquired: tuple[int, holdfast.Lease] | None
    ) -> None:
        """Releases a lease that nobody will use. It may have been noted as `acquired`."""
        with self._mutex:
            # Not one that is equal: of a re-entrant lock, each acquisition has the same lease.
            self._leases = [known for known in self._leases if known is not acquired]
        with suppress(LockError):
            lease.release()

    def _place(self) -> int | None:
        """Returns where the lease is that this thread has acquired last; else that of another."""
        me = threading.get_ident()
        places = range(len(self._leases))
        mine = [place for place in places if self._leases[place][0] == me]
        return max(mine or places, default=None)

    def _pop(self) -> tuple[int, holdfast.Lease]:
        """Returns the lease to give back, which is not acquired any more then, and its thread."""
        with self._mutex:
            place = self._place()
            if place is None:
                raise LockNotOwned(self._unacquired, name=self.name)
            return self._leases.pop(place)

    @property
    def _release_save(self) -> NoReturn:
        """Refuses `threading.Condition`, which asks for it when it is made."""
        raise ConfigError(
            f"the lock {self.name!r} cannot be that of a threading.Condition: notify() would reach the "
            "threads of this process only, and wait() could come back without the lock",
            name=self.name,
        )


class ThreadingRLock(ThreadingLock):
    """A lock as `threading.RLock` is: its thread may acquire it again, and releases it as often."""

    _unacquired = "cannot release un-acquired lock"

    @staticmethod
    def _made(locks: holdfast.Locks, name: str, options: LockKeywords) -> holdfast.Lock:
        return locks.rlock(name, **options)

    def _place(self) -> int | None:
        place = super()._place()
        mine = place is not None and self._leases[place][0] == threading.get_ident()
        return place if mine else None


def _lost(lease: holdfast.Lease) -> LeaseLost:
    """Returns the error that the lease itself would raise."""
    try:
        lease.ensure()
    except LeaseLost as error:
        return error
    raise AssertionError("a lease that is held was not released")
