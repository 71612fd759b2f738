"""Calling an etcd cluster: one member after the other, until one answers or the time is over.

Every call that is made through here may be repeated: an acquisition is known by its owner, a
release and a grant by the revision of the key that they change. A caller that has to know that an
earlier try may still arrive, because it ended without a reply, is told by `unanswered`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...._runtime.aio import Signal, Turn
from ....clock import Clock
from ....errors import BackendUnavailable, LockError
from ..address import Address
from ..wire import messages
from ..wire.aio import Wire
from ..wire.failures import Failure
from ..wire.messages import Range, Transaction

UNREACHABLE = 2.0
"""Seconds for which no member may be reachable at all before a call is given up. A member that restarts
is back by then."""
PAUSE, LONGEST_PAUSE = 0.01, 0.2
SHORTEST_TRY = 0.5
LOGINS = 3
"""The number of times that one call may have to log in anew."""


Result = TypeVar("Result")


class Retrier:
    """Calls to one member of a cluster after the other, until one answers."""

    def __init__(self, wire: Wire, address: Address, clock: Clock) -> None:
        self.wire = wire
        self._address = address
        self._clock = clock
        self._logging_in = Turn()
        self._logins = 0
        self._members = len(address.endpoints)
        self._share = self._members + 2 if self._members > 1 else 1
        """The number of parts into which the time of a call is divided; one member may take one."""
        self._silent = False
        """True if the last call that has ended was not answered."""
        self.unproven: dict[Callable[[], None], int] = {}
        """Functions to call once a transaction that was sent later is answered in the term given."""

    async def txn(
        self,
        request: bytes,
        deadline: float,
        unanswered: Callable[[], None] | None = None,
    ) -> Transaction:
        """Returns the reply to a transaction."""
        kept = list(self.unproven.items()) if self.unproven else None
        reply = await self.call(messages.TXN, request, deadline, unanswered)
        if kept:
            term = messages.parse_term(reply)
            for prove, of in kept:
                if self.unproven.pop(prove, None) is not None and of == term:
                    prove()
        return messages.parse_txn(reply)

    async def try_all(self, requests: Sequence[bytes], deadline: float) -> None:
        """Sends transactions at once, each once: whether they are carried out does not matter."""
        try:
            await self.wire.call_all(
                messages.TXN, requests, self._patience(deadline - self._clock.now())
            )
        except Failure:
            return

    async def range(self, request: bytes, deadline: float) -> Range:
        """Returns the keys that were read."""
        return messages.parse_range(await self.call(messages.RANGE, request, deadline))

    async def call(
        self,
        method: str,
        request: bytes,
        deadline: float,
        unanswered: Callable[[], None] | None = None,
    ) -> bytes:
        """Returns a reply. Raises `Failure` if a lease is wrong, else an error for the user."""
        logins = self._logins
        left = self._left(deadline)
        patience = left / self._share
        if patience < SHORTEST_TRY:
            patience = self._patience(left)
        try:
            # At once, and mostly that is all.
            reply = await self.wire.call(method, request, patience)
        except Failure as failure:
            self._silent = failure.passing
            reply = await self._again(failure, method, request, deadline, unanswered, logins)
        except BaseException:
            if unanswered is not None:
                unanswered()
            raise
        self._silent = False
        return reply

    def _left(self, deadline: float) -> float:
        """Returns the seconds for a call that begins now.

        All that came before it was waited for until the deadline, and no longer. If that is over though
        the cluster answers, then because this process stood still.
        """
        left = deadline - self._clock.now()
        return left if left > 0 or self._silent else SHORTEST_TRY

    def _patience(self, left: float) -> float:
        """Returns the seconds that one member may take, so that there is time left for the others."""
        return max(left / self._share, min(left, SHORTEST_TRY), 0.001)

    async def _again(
        self,
        failure: Failure,
        method: str,
        request: bytes,
        deadline: float,
        unanswered: Callable[[], None] | None,
        logins: int,
    ) -> bytes:
        clock = self._clock
        pause = PAUSE
        tries = 1
        reached = clock.now()
        while True:
            if self.wire.closed:
                raise BackendUnavailable(f"this connection to {self._address} is closed")
            now = clock.now()
            user = self._address.user and method != messages.AUTHENTICATE
            if failure.wants_login and user and tries <= LOGINS:
                await self._log_in(logins, deadline)
                logins = self._logins
            elif failure.passing:
                if unanswered is not None and not failure.untouched:
                    unanswered()
                if not failure.unreachable:
                    reached = now
                self.wire.turn_from(failure.endpoint)  # for the next call, at least
                if now + pause >= deadline or now - reached > UNREACHABLE:
                    raise failure.in_words(str(self._address))
                if tries >= self._members:
                    await Signal(clock).wait(now + pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
            elif failure.lease_is_gone or failure.lease_exists:
                raise failure
            else:
                raise failure.in_words(str(self._address))
            tries += 1
            left = deadline - clock.now()
            if left <= 0:
                raise failure.in_words(str(self._address))
            try:
                return await self.wire.call(method, request, self._patience(left))
            except Failure as another:
                failure = another
            except BaseException:
                if unanswered is not None:
                    unanswered()
                raise

    async def log_in(self, deadline: float) -> None:
        """Gets a token for the user, if the address names one."""
        if self._address.user:
            await self._log_in(self._logins, deadline)

    async def _log_in(self, seen: int, deadline: float) -> None:
        """Gets a token for our user, unless another call did since `seen`."""

        async def authenticate() -> None:
            if self._logins != seen:
                return
            # The old token stays until then: without one the calls of others would be refused.
            request = messages.authenticate(self._address.user, self._address.password)
            self.wire.log_in(
                messages.parse_token(await self.call(messages.AUTHENTICATE, request, deadline))
            )
            self._logins += 1

        await self.in_turn(self._logging_in, deadline, authenticate)

    async def in_turn(
        self,
        turn: Turn,
        deadline: float,
        work: Callable[[], Awaitable[Result]],
        busy: Result | None = None,
    ) -> Result:
        """Returns what `work` returns, behind others who call the cluster for the same.

        If `busy` is given, it waits for nobody, and returns that where another has the turn.
        """
        try:
            within = 0.0 if busy is not None else self._left(deadline)
            if not await turn.take(within):
                if busy is not None:
                    return busy
                raise self.too_late()
            return await work()
        finally:
            # Twice, as a signal handler may raise at its very entry: the turn must not stay taken.
            try:
                turn.end()
            except BaseException:
                turn.end()
                raise

    def too_late(self) -> LockError:
        """Returns the error for a caller whose time is over before the cluster could be asked."""
        failure = Failure("DEADLINE_EXCEEDED", "", self.wire.endpoint)
        return failure.in_words(str(self._address))
