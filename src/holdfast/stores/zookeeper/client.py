"""kazoo's client, as it is used here: its connection, its session and its codec, without its threads.

A callback is given along with each request, and runs in the connection's thread as soon as the reply is
there. It must be quick, and must not wait.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, SessionExpiredError
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ...events import report
from .address import Address
from .connection import Connection, InlineHandler
from .requests import ReplyCallback, Unanswered

GREETING = 2.0
"""Seconds that a server has to answer a greeting, at least."""
LONGEST_CLOSE = 5.0
"""Seconds that a server has to answer that it has closed a session; nobody waits for all of them."""
RETRY_FIRST, RETRY_LONGEST = 0.03, 0.5
"""Seconds between rounds through the servers that could not be reached."""

ENDS: dict[str, type[Exception]] = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.CLOSED: ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}
"""The states in which nothing can be sent, and the error of a request."""

# At DEBUG kazoo logs what it sends, credentials included; that must never be on.
_log = logging.getLogger("holdfast.zookeeper")
_log.setLevel(logging.INFO)
_log.addHandler(logging.NullHandler())


def acl_of(address: Address) -> Sequence[Any]:
    """Returns who may use the znodes that we create: the user that we are, or everybody."""
    acl: Sequence[Any] = OPEN_ACL_UNSAFE
    return CREATOR_ALL_ACL if address.credentials or address.sasl else acl


class PendingReply:
    """The callback of one request, called once: with the value or with the error.

    `on_lost` is called first if the request was left unanswered.
    """

    __slots__ = ("_on_lost", "_on_reply")

    def __init__(self, on_reply: ReplyCallback, on_lost: Callable[[], None]) -> None:
        self._on_reply: ReplyCallback | None = on_reply
        self._on_lost = on_lost

    def set(self, value: Any = None) -> None:
        self._call(value, None)

    def set_exception(self, error: Exception) -> None:
        if isinstance(error, Unanswered):
            self._on_lost()  # before the callback, which may want to send again at once
        self._call(None, error)

    def _call(self, value: Any, error: Exception | None) -> None:
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None:
            try:
                on_reply(value, error)
            except Exception as failure:  # it must not end the connection's thread
                report("a reply of ZooKeeper could not be dealt with", failure)


class Client(KazooClient):  # type: ignore[misc]
    """One ZooKeeper session and its connection.

    `on_state` is called with kazoo's words CONNECTED, SUSPENDED and LOST; `on_lost` at the first
    request that the loss of a connection leaves unanswered.
    """

    def __init__(
        self,
        address: Address,
        timeout: float,
        on_state: Callable[[str], None],
        on_lost: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        hosts = address.hosts.count(",") + 1
        super().__init__(
            hosts=address.hosts,
            timeout=timeout,
            handler=InlineHandler(timeout / 3 / hosts, now, address.tls),
            auth_data=[("digest", address.credentials)] if address.credentials else None,
            sasl_options=dict(address.sasl) if address.sasl else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_FIRST, backoff=2, max_delay=RETRY_LONGEST
            ),
            logger=_log,
        )
        self.acl = acl_of(address)
        self._pid = os.getpid()
        self._connection = Connection(
            self,
            self._conn_retry.copy(),
            logger=_log,
            sasl_options=dict(address.sasl) if address.sasl else None,
        )
        self.now = self._connection.now = now
        self._connection.longest_greeting = max(GREETING, timeout / 10)
        self.add_listener(on_state)
        self._on_lost = on_lost

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server gave, in seconds."""
        timeout: float = self._connection.session_timeout
        return timeout

    @property
    def greeted_at(self) -> float:
        """The time at which we sent the latest greeting that was answered."""
        sent_at: float = self._connection.greeted_at
        return sent_at

    @property
    def replied_at(self) -> float:
        """The time at which the latest reply to a request was read."""
        moment: float = self._connection.replied_at
        return moment

    @property
    def session_id(self) -> int:
        """The id of the session; 0 before there is one."""
        return self._session_id or 0

    def send(self, request: Any, on_reply: ReplyCallback) -> None:
        """Sends a request, in the order of the calls.

        `on_reply` may be called before this returns, if the request cannot be sent.
        """
        pending = PendingReply(on_reply, self._on_lost)
        if self._state in ENDS:
            pending.set_exception(ENDS[self._state]())
            return
        self._queue.append((request, pending))
        if not self._connection.wake():
            pending.set_exception(ConnectionClosedError())

    @property
    def awaits_reply(self) -> bool:
        """Whether a request was sent that has not been answered."""
        return bool(self._pending)

    @property
    def failure(self) -> str:
        """The reason why the latest try to connect failed; empty once one has succeeded."""
        text: str = self._connection.failure
        return text

    def drop_connection(self) -> None:
        """Breaks the connection, so that another server is tried; the session stays."""
        sock = self._connection._socket
        if sock is not None and self._pid == os.getpid():  # else it is the parent's as well
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def start_async(self) -> Any:
        try:
            return super().start_async()
        except BaseException:
            self._connection.discard()
            raise

    def end(self, on_ended: Callable[[], None], stays: bool = False) -> None:
        """Asks the server to close the session, unless it `stays`, and waits for nothing.

        `on_ended` is called once the session is closed, or cannot be: at once, where there is no
        connection. The connection's thread is then left to end by itself: it may be inside a name
        server's library, or a connect, which nothing interrupts.
        """
        self._connection.end(on_ended, self.now() + LONGEST_CLOSE)
        connected = self.connected and not stays
        self._stopped.set()
        if not stays:
            self._queue.append((CloseInstance, None))
            self._connection.wake()
        if not connected:
            self.drop_connection()  # a greeting may be under way that nobody waits for any more
            self._connection.report_end()
