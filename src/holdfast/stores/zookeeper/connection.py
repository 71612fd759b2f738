"""kazoo's connection to one server at a time, changed where it does not suit locks.

kazoo hands every reply and every event to worker threads of its own, and each hand-over between threads
costs as much as the reply took to travel. Here the connection's own thread deals with them.

This module and `client` are the only ones that know kazoo's insides: the queue of requests, `_invoke`,
to learn the session timeout that the server gave, `_connect` and `_expand_client_hosts`, to say why a
server could not be reached, `zk_loop`, so that nobody has to wait for the thread's end, and `_xid`,
`_read_response` and `_connect_attempt`, because an error that ends the connection's thread ends all our
locks.
"""

from __future__ import annotations

import os
import random
import select
from collections.abc import Callable
from math import ceil, inf
from ssl import SSLContext
from threading import RLock
from typing import Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KeeperState

from ...interrupts import let_through
from ..resolving import look_up, unresolved
from ..tls import unanswered
from . import tls_socket
from .tls_socket import TlsSocket

LOGIN_DROPPED = "Connection dropped in SASL"
"""kazoo's words for a connection that was lost during the login. Some servers refuse us so."""
HUNG_UP = ("socket connection broken", "Connection reset by peer", "Broken pipe")
LONGEST_REFUSAL = 5.0
"""Seconds for which servers hang up before they greet us, as they do while they elect a leader, until
they are greeted as if we had seen none of their writes."""


class SendCounter:
    """A count of requests that are still to be sent, which wakes the connection's thread.

    kazoo's own, a pair of sockets, is full after some 270 requests. A thread that sends more at once
    has to wait for the connection's thread, which may be waiting for a mutex that the sender has.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._mutex = RLock()  # a number that was closed may be another's by now

    def fileno(self) -> int:
        return self._fd

    def send(self, data: bytes) -> None:
        with self._mutex:
            os.eventfd_write(self._fd, len(data))

    def recv(self, size: int) -> None:
        os.eventfd_read(self._fd)

    def close(self) -> None:
        with self._mutex:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


class InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """A handler without worker threads: callbacks run in the connection's own thread."""

    running = False
    ends_at = inf
    """The time at which the thread stops waiting for a server, because its session has been left."""

    def __init__(
        self, longest_connect: float, now: Callable[[], float], tls: SSLContext | None
    ) -> None:
        super().__init__()
        self._longest_connect = longest_connect
        self._now = now
        self.tls = tls

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_socket_pair(self) -> tuple[SendCounter, SendCounter]:
        counter = SendCounter()
        return counter, counter

    def create_connection(self, *args: Any, timeout: float, **options: Any) -> Any:
        # kazoo gives a server that does not answer the whole session timeout: then the session is over.
        timeout = min(timeout, self._longest_connect)
        if self.tls is not None:
            return tls_socket.connect(options["address"], options["hostname"], timeout, self.tls)
        return super().create_connection(*args, timeout=timeout, **options)

    def select(
        self, readers: Any, writers: Any, _: Any, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Waits as `select.select` does, but for descriptors of any number; called for each request."""
        secured = [one for one in readers if isinstance(one, TlsSocket)]
        if secured and secured[0].has_unread:
            return secured, [], []
        if self.ends_at != inf:
            left = self.ends_at - self._now()
            if left <= 0:
                raise self.timeout_exception("the session was left")
            timeout = left if timeout is None else min(left, timeout)
        poll = select.poll()
        for one in readers:
            poll.register(one, select.POLLIN)
        for one in writers:
            poll.register(one, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else ceil(timeout * 1000))}
        if not ready:
            return [], [], []
        return (
            [
                one
                for one in readers
                if one.fileno() in ready and (one not in secured or one.fill())
            ],
            [one for one in writers if one.fileno() in ready],
            [],
        )


class Connection(ConnectionHandler):  # type: ignore[misc]
    """The connection of one client session, which moves from server to server."""

    session_timeout = 0.0
    """The session timeout that the server gave, in seconds."""
    greeted_at = 0.0
    """The time at which the latest greeting that was answered was sent: the session lived then."""
    replied_at = 0.0
    """The time at which the latest reply to a request was read."""
    longest_greeting = 0.0
    """Seconds that a server has to answer a greeting."""
    failure = ""
    """The reason why the latest try to connect failed."""
    now: Callable[[], float]
    _refused_since: float | None = None
    """The time since which servers have hung up before they greeted us, and none has greeted us."""
    _last_xid = 0
    _on_ended: Callable[[], None] | None = None

    def wake(self) -> bool:
        """Wakes the thread, because there is something to send; returns False if it has ended."""
        counter = self._write_sock
        try:
            if counter is not None:
                counter.send(b"\0")
        except OSError as error:
            let_through(error)
            return False
        return counter is not None

    def end(self, on_ended: Callable[[], None], ends_at: float) -> None:
        """Has the thread end by `ends_at`, or a little later, and call `on_ended` then."""
        self._on_ended = on_ended
        self.handler.ends_at = ends_at

    def report_end(self) -> None:
        on_ended, self._on_ended = self._on_ended, None
        if on_ended is not None:
            on_ended()

    def discard(self) -> None:
        """Lets go of a connection whose thread could not be started."""
        self.connection_stopped.set()
        self.close()

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        finally:
            self.close()  # kazoo leaves that to whoever waits for the thread
            self.report_end()

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """Returns the addresses of the servers, in an order by chance."""
        reason, found = self.failure, []
        for host, port in self.client.hosts:
            self.failure = f"{host}:{port}: {unresolved(host)}"  # if it takes too long
            try:
                found += [(host, *place.where[:2]) for place in look_up(host, port)]
            except (OSError, ValueError) as error:
                reason = f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
        self.failure = reason
        random.shuffle(found)
        return found

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        tls = self.handler.tls
        if tls is not None and not self.failure:
            self.failure = f"{host}:{port}: {unanswered(tls)}"  # as long as we wait for it
        try:
            result = super()._connect(host, hostip, port)
        except Exception as error:
            self.failure = f"{host}:{port}: {_in_words(error)}"
            if _text_of(error) in HUNG_UP:
                self._note_refusal()
            if str(error) == LOGIN_DROPPED:
                raise ConnectionDropped(
                    LOGIN_DROPPED
                ) from error  # it may be the way that is broken
            raise
        self.failure = ""
        self._refused_since = None
        return result

    def _note_refusal(self) -> None:
        """Notes that a server hung up before it greeted us, and helps if that goes on.

        Servers that lost their data, or were given older data, refuse whoever has seen later writes,
        for ever. Without those they say that the session has expired, and another one begins. Where the
        session lives after all, a server may be behind what we have seen; but it is writes that decide.
        """
        now = self.now()
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > min(self.session_timeout, LONGEST_REFUSAL):
            self.client.last_zxid = 0

    @property
    def _xid(self) -> int:
        """The number of the latest request; no number is used twice in a session.

        kazoo starts again with each connection. But a server to which a session has moved may still
        hear of a write that was agreed to on the old connection, and takes that for the reply to a
        request of the same number and kind: a creation would be told another's path.
        """
        return self._last_xid

    @_xid.setter
    def _xid(self, number: int) -> None:
        if number:
            self._last_xid = number

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            # A server that takes the connection and says nothing is not worth the session either.
            sent_at = self.now()
            reply = super()._invoke(min(timeout, self.longest_greeting), request, xid)
            self.session_timeout = reply[0].time_out / 1000
            self.greeted_at = sent_at
            return reply
        return super()._invoke(timeout, request, xid)

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        pending = self.client._pending
        if not pending or pending[0][2] != header.xid:
            # A reply got lost on the way. kazoo would give this one to the next request, and end.
            raise ConnectionDropped("a reply to another request")
        self.replied_at = self.now()
        return super()._read_response(header, buffer, offset)

    def _connect_attempt(self, *args: Any) -> Any:
        try:
            return super()._connect_attempt(*args)
        except Exception:
            # kazoo has logged it, and would let its thread end, and with it all that is on this
            # session. On to the next server.
            self.client._session_callback(KeeperState.CONNECTING)
            return None


def _text_of(error: Exception) -> str:
    """Returns what kazoo, or the system, says of a connection that broke."""
    return str(error).removeprefix("socket connection error: ")


def _in_words(error: Exception) -> str:
    """Returns why a server could not be connected to."""
    if str(error) == LOGIN_DROPPED:
        return "it hung up while we logged in; perhaps it refused our credentials"
    if isinstance(error, AuthFailedError):
        return "it refused our credentials"
    if isinstance(error, SessionExpiredError):
        return "the session had expired"
    text = _text_of(error)
    if text in HUNG_UP:
        return (
            "it hung up before it greeted us; perhaps the servers elect a leader, or it has as many "
            "connections from this address as it allows (maxClientCnxns, 60 by default), or it wants "
            "TLS (tls=1)"
        )
    return text or type(error).__name__
