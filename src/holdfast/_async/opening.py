"""The session of a manager: opened on first use, once; closed; and begun afresh in a forked child."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from .. import forks
from .._runtime.aio import Turn, check_surroundings, current, finish, here
from ..clock import system_clock
from ..errors import BackendUnavailable, LockError
from ..events import Call, CallListener, Event, Listeners
from ..guarantees import Guarantees, Provisional
from ..model import lock_realm
from ..refusals import may_open_nothing, unavailable
from ..stores._async.contract import OPEN_LIMIT, Backend
from .session import Session

Result = TypeVar("Result")

Opener = Callable[[], Backend]
"""Makes the adapter to the store, not yet open."""

CLOSE_LIMIT = 60.0
"""Seconds that `close` waits for the store. What it could not release ends by itself."""


LEAST_REST = 0.25
"""Seconds that a request is given at the least, when opening the store has taken the time there was."""


class Opening:
    """A manager's way to its store, which all its locks share."""

    def __init__(
        self, url: str, namespace: str, guarantees: Guarantees, opener: Opener, label: str
    ) -> None:
        self.url = url
        self.guarantees = guarantees
        self.listeners: Listeners[Event] = Listeners()
        self.call_listeners: Listeners[Call] = Listeners()
        self.live: Session | None = None
        """The session, if there is one; it may be closed, or belong to another event loop."""
        self.provisional = isinstance(guarantees, Provisional)
        """Whether the store says what it promises only when it is reached."""
        self._namespace = namespace
        self.realm = lock_realm(guarantees.store, namespace)
        self._opener = opener
        self._label = label
        self.closed = False
        self._turn = Turn()
        """The turn of whoever opens."""
        self._turn_home: object = None
        """The event loop that it belongs to."""
        forks.survive(self)

    async def session(self, limit: float = OPEN_LIMIT) -> Session:
        """Returns the session; if there is none yet, opens it within `limit` seconds."""
        generation = forks.current()  # begins afresh in a child that Python was not told of
        session = self.live
        if session is not None and session.generation != generation:
            self._after_fork()
            session = None
        if session is None or session.closed or session.home is not here():
            try:
                session = await self._open(limit)
            except OSError as error:
                refused = may_open_nothing(error)
                if refused is None:
                    raise
                raise refused from error
        return session

    def on_call(self, listener: CallListener) -> Callable[[], None]:
        """Calls `listener(call)` for each call to the store from now on; returns how to stop."""
        stop = self.call_listeners.add(listener, "on_call")
        session = self.live
        if session is not None:
            session.backend = self._timed(session.backend)
        return stop

    def _timed(self, backend: Backend) -> Backend:
        """Returns the backend; if somebody listens to its calls, as one that tells of them."""
        if not self.call_listeners:
            return backend
        from .timed_backend import timed  # most programs never need it

        return timed(backend, self.call_listeners)

    def tell_failed(self, name: str, duration: float, error: BackendUnavailable) -> None:
        """Tells the listeners that the store was not reached, so that `name` was not asked for."""
        if self.listeners:
            at = system_clock().wall()
            self.listeners.tell(Event("failed", name, "", 0, duration, at, str(error)))

    async def ask(
        self, what: str, name: str | None, question: Callable[[Session, float], Awaitable[Result]]
    ) -> Result:
        """Returns the store's answer to `question`, which is given a deadline.

        The error of a store that does not answer says that it could not be `what`.
        """
        began = system_clock().now()
        try:
            session = await self.session()
            spent = system_clock().now() - began
            left = max(session.patience - spent, LEAST_REST)
            return await question(session, session.clock.now() + left)
        except BackendUnavailable as error:
            raise unavailable(f"{self.url} could not be {what}", error, name) from error
        except OSError as error:
            refused = may_open_nothing(error)
            if refused is None:
                raise
            raise unavailable(f"{self.url} could not be {what}", refused, name) from error

    async def _open(self, limit: float) -> Session:
        self._check_open()
        check_surroundings()
        deadline = system_clock().now() + limit
        # unasync: aio-only
        if self._turn_home is not here():
            from .._runtime.aio import renew_in_children  # the other world has no loops

            self._turn, self._turn_home = Turn(), here()
            renew_in_children(here())
        # unasync: end
        turn = self._turn
        try:
            if not await turn.take(limit):
                raise BackendUnavailable(
                    f"the store at {self.url} was not reached within {limit:g} s"
                )
            self._check_open()
            session = self._present()
            if session is not None:
                return session
            left = deadline - system_clock().now()  # another may have tried in vain before us
            session = await self._make(self._opener(), left)
            if self.closed:  # since it was made, by somebody who saw no session
                await self.close()
                self._check_open()
            return session
        finally:
            turn.end()

    async def _make(self, backend: Backend, left: float) -> Session:
        """Opens the store within `left` seconds, and returns the session that counts from now on.

        It is new, unless a signal's handler in our thread, or another loop, has made one meanwhile.
        """
        made = known = None
        opened = False
        try:
            try:
                await self._timed(backend).open(backend.clock.now() + left)
            except BackendUnavailable as error:
                if type(error) is BackendUnavailable:
                    raise
                raise BackendUnavailable(str(error)) from error  # a store has kinds of its own
            opened = True
            self._check_open()  # `close` waits for nobody who is opening
            if self.provisional:
                self.guarantees = backend.guarantees
                self.realm = lock_realm(self.guarantees.store, self._namespace)
            made = Session(backend, self.listeners, self._label, self.realm)
            made.provisional = self.provisional
            made.backend = self._timed(backend)
            while known is None:
                known = self._present()
                if known is None and self.live is None:
                    self.live = known = made  # nothing is called in between
            return known
        finally:
            in_use = made is not None and (known is made or self.live is made)
            if opened and not in_use:  # interrupted, closed, or too late
                await backend.close()

    def _present(self) -> Session | None:
        """Returns the session that there is; raises if it belongs to another event loop."""
        session = self.live
        if session is None or session.home is here():
            return session
        # unasync: aio-only
        if session.closing.strand_if_ended():
            self.live = None
            return None
        # unasync: end
        raise LockError("this connection is in use by another event loop; call connect() in each")

    def __del__(self) -> None:
        if sys.is_finalizing():  # asked first: modules may be gone, where the server is in C
            return
        session = getattr(self, "live", None)
        if session is None or session.finished or session.generation != forks.current():
            return
        # unasync: aio-only
        if session.closing.strand_if_ended():
            return  # too late to be closed, or to be warned of
        # unasync: end
        session.drop(self.closed)  # before the warning, which may be an error
        if self.closed:
            return  # `close` was interrupted, and nobody can call it again
        warnings.warn(
            f"the manager of locks at {self.url} was dropped and never closed; call close(), or use "
            "`with`",
            ResourceWarning,
            stacklevel=2,
        )

    def _check_open(self) -> None:
        if self.closed:
            raise LockError("this connection is closed; call connect() for a new one")

    def _after_fork(self) -> None:
        """Starts afresh in a forked child: what the parent holds and opened stays the parent's."""
        if self.live is not None:
            forks.abandon(self.live)  # first: a signal's handler may raise in between
            self.live = None
        self._turn = Turn()

    async def close(self) -> None:
        """Releases what is held, ends every wait, and lets go of the store. May be repeated."""
        # Before anything is waited for: a callback that uses us now is refused, and not waited for.
        # No mutex: a signal's handler may call this while its own thread is opening, or closing.
        forks.current()  # lest a child that Python was not told of ends what its parent holds
        self.closed = True
        session = self.live
        # unasync: aio-only
        if session is not None and session.closing.strand_if_ended():
            session = self.live = None
        # unasync: end
        if session is not None:
            # To its end, even if we are cancelled. Where we are interrupted, the next call goes on.
            await finish(partial(session.close, current()), grace=CLOSE_LIMIT)
            if session.finished:
                self.live = None
