"""The session of a manager: opened on first use, once; closed; and begun afresh in a forked child."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .. import forks
from .._runtime.aio import Mutex, check_surroundings, current, enter, finish, here
from ..clock import system_clock
from ..errors import BackendUnavailable, LockError
from ..events import Listeners
from ..guarantees import Guarantees
from ..model import lock_realm
from ..stores._async.contract import OPEN_LIMIT, Backend
from .session import Session

Opener = Callable[[], Backend]
"""Makes the adapter to the store, not yet open."""

CLOSE_LIMIT = 60.0
"""Seconds that `close` waits for the store. What it could not release ends by itself."""


class Opening:
    """A manager's way to its store, which all its locks share."""

    def __init__(
        self, url: str, namespace: str, guarantees: Guarantees, opener: Opener, label: str
    ) -> None:
        self.url = url
        self.guarantees = guarantees
        self.listeners = Listeners()
        self.live: Session | None = None
        """The session, if there is one; it may be closed, or belong to another event loop."""
        self._realm = lock_realm(guarantees.store, namespace)
        self._opener = opener
        self._label = label
        self._closed = False
        self._mutex = Mutex()
        forks.survive(self)

    async def session(self, limit: float = OPEN_LIMIT) -> Session:
        """Returns the session; if there is none yet, opens it within `limit` seconds."""
        session = self.live
        if session is None or session.closed or session.home is not here():
            session = await self._open(limit)
        return session

    async def _open(self, limit: float) -> Session:
        self._check_open()
        check_surroundings()
        deadline = system_clock().now() + limit
        mutex = self._mutex
        if not await enter(mutex, limit):
            raise BackendUnavailable(f"the store at {self.url} was not reached within {limit:g} s")
        try:
            self._check_open()
            session = self.live
            if session is not None:
                if session.home is here():
                    return session
                raise LockError(
                    "this connection is in use by another event loop; call connect() in each"
                )
            left = deadline - system_clock().now()  # another may have tried in vain before us
            backend = self._opener()
            await backend.open(backend.clock.now() + left)
            if self._closed:  # meanwhile: `close` waits for nobody who is opening
                await backend.close()
                self._check_open()
            session = Session(backend, self.listeners, self._label, self._realm)
            self.live = session
            return session
        finally:
            mutex.release()

    def _check_open(self) -> None:
        if self._closed:
            raise LockError("this connection is closed; call connect() for a new one")

    def _after_fork(self) -> None:
        """Starts afresh in a forked child: what the parent holds and opened stays the parent's."""
        session, self.live = self.live, None
        self._mutex = Mutex()
        if session is not None:
            forks.abandon(session)

    async def close(self) -> None:
        """Releases what is held, ends every wait, and lets go of the store. May be repeated."""
        # Before anything is waited for: a callback that uses us now is refused, and not waited for.
        # No mutex: a signal's handler may call this while its own thread is opening, or closing.
        self._closed = True
        session = self.live
        if session is not None:
            # To its end, even if we are cancelled. Where we are interrupted, the next call goes on.
            await finish(partial(session.close, current()), grace=CLOSE_LIMIT)
            if session.finished:
                self.live = None
