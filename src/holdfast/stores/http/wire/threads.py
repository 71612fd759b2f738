"""The wire to a lock service for blocking code. Its twin is `aio`: the same names, the same meanings.

Each request has a connection to itself, from a pool. No mutex is held while a socket is used, and a
request that is interrupted, by whatever, closes its connection.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from .... import forks
from ....clock import system_clock
from ....interrupts import let_through
from ....refusals import reason
from ...etcd.wire.members import Members
from ...polled_sockets import Late, open_socket
from ..address import Address, Endpoint
from .blocking_connection import Connection
from .blocking_stream import Stream
from .failures import Failure, closed, late, unreachable
from .http1 import Answer, Broken, request_of

MOST = 32
"""Connections for requests to one service. Who finds all of them busy waits for one."""
SUSPECT_AFTER = 0.5
"""Seconds without use after which a connection is checked before it is used."""
LONGEST_SLEEP = 1.0
"""Seconds after which a thread that waits for a connection looks again."""

__all__ = ["ASYNCHRONOUS", "MOST", "Stream", "Wire"]

ASYNCHRONOUS = False

Now = Callable[[], float]


class Pool:
    """The connections to one service."""

    # Lists and sets are only changed by single calls that run no Python code, and without a mutex,
    # which a fork or a signal's handler could find held.

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.used: set[Use] = set()
        self.line: deque[LockType] = deque()
        """Threads that wait for a connection."""

    def call_next(self) -> None:
        """Wakes the first thread that waits for a connection."""
        with suppress(IndexError, RuntimeError):  # none waits, or it was woken twice
            self.line.popleft().release()


class Use:
    """The use of one connection by one request."""

    __slots__ = ("connection", "whole")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.whole = False
        """Whether the answer has come, and the connection may serve another request."""


class Wire:
    """A pool of connections to each service; requests go to one service at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._now = system_clock().now
        self._members = Members(address)
        self.closed = False
        self._made_in = forks.current()
        self._pools = {endpoint: Pool() for endpoint in self._address.endpoints}

    @property
    def endpoint(self) -> str:
        """The service that requests go to."""
        return self._members.endpoint

    def turn_from(self, endpoint: str) -> None:
        """Turns from a service that is no good now to the next; once, however many callers say so."""
        self._members.turn_from(endpoint)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        deadline: float,
        endpoint: str = "",
        ahead: bool = False,
    ) -> Answer:
        """Returns the answer of one service; raises `Failure`.

        `ahead`: it does not wait for one of the connections that others use.
        """
        endpoint = endpoint or self._members.endpoint
        request = request_of(
            method, self._address.prefix + path, self._address.headers(endpoint), body
        )
        forks.refuse_inherited(self._made_in)
        pool = self._pools[endpoint]
        use = Use()
        try:
            if not ahead:
                self._wait_for_another(pool, endpoint, deadline)
            pool.used.add(use)
            connection = use.connection = self._alive(pool) or self._open(endpoint, deadline)
            forks.refuse_inherited(self._made_in)  # again: a child opens one of its own
            if self.closed:
                raise closed(endpoint)
            answer = connection.call(request, deadline, endpoint)
            use.whole = connection.reusable
            return answer
        except Late:
            raise late(endpoint) from None
        except Broken as error:
            raise Failure(str(error), endpoint) from None
        except OSError as error:
            let_through(error)
            raise Failure(f"the connection broke: {reason(error)}", endpoint) from None
        finally:
            # Twice, as a signal's handler may raise at its very entry: the place must not stay taken.
            try:
                self._give_back(pool, use)
            except BaseException:
                self._give_back(pool, use)
                raise

    def _give_back(self, pool: Pool, use: Use) -> None:
        connection = use.connection
        if connection is not None:
            if use.whole and not self.closed and len(pool.idle) < MOST:
                use.whole = False
                connection.used = self._now()
                use.connection = None
                pool.idle.append(connection)
                if self.closed:  # meanwhile
                    self._close_idle(pool)
            else:
                connection.close()
        pool.used.discard(use)
        pool.call_next()

    def _wait_for_another(self, pool: Pool, endpoint: str, deadline: float) -> None:
        """Waits until fewer than `MOST` requests are under way."""
        while len(pool.used) >= MOST and not self.closed:
            left = deadline - self._now()
            if left <= 0:
                raise Failure("too many requests are under way", endpoint, untouched=True)
            turn = allocate_lock()
            turn.acquire()
            pool.line.append(turn)
            if len(pool.used) >= MOST:  # else one was given back before we were in line
                turn.acquire(True, min(left, LONGEST_SLEEP))
            with suppress(ValueError):  # we were called
                pool.line.remove(turn)

    def _alive(self, pool: Pool) -> Connection | None:
        """Takes an idle connection that the service has not closed, if there is one."""
        while pool.idle:
            try:
                connection = pool.idle.pop()
            except IndexError:  # another thread was quicker
                return None
            if self._now() - connection.used < SUSPECT_AFTER or connection.is_alive():
                return connection
            connection.close()
        return None

    def _open(self, endpoint: str, deadline: float) -> Connection:
        """Returns a new connection."""
        if self.closed:
            raise closed(endpoint)
        place = self._address.places[endpoint]
        try:
            return open_connection(place, deadline, self._now)
        except (OSError, Late) as error:
            let_through(error)
            why = TimeoutError() if isinstance(error, Late) else error
            raise unreachable(why, endpoint) from None

    def stream(
        self, path: str, opened: Callable[[], None], heard: Callable[[str, bytes], None]
    ) -> Stream:
        """Returns a stream of events, not begun; `opened` and `heard` are called by its `run`."""
        endpoint = self._members.endpoint
        head = self._address.headers(endpoint) + b"Accept: text/event-stream\r\n"
        request = request_of("GET", self._address.prefix + path, head, None)
        return Stream(self._address.places[endpoint], request, self._now, opened, heard)

    def close(self) -> None:
        self.closed = True
        if self._made_in != forks.current():
            return  # all of it is the parent's
        for pool in self._pools.values():
            self._close_idle(pool)
            for use in list(pool.used):
                if use.connection is not None:
                    use.connection.interrupt()
            while pool.line:
                pool.call_next()

    def _close_idle(self, pool: Pool) -> None:
        while pool.idle:
            try:
                pool.idle.pop().close()
            except IndexError:  # another thread was quicker
                return


def open_connection(place: Endpoint, deadline: float, now: Now) -> Connection:
    """Returns a connection to one service, TLS included; raises `OSError` or `Late`."""
    return Connection(open_socket(place.host, place.port, place.tls, deadline, now), now)
