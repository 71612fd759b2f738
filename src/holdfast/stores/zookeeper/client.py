"""kazoo, as it is used here: its connection, its session and its codec, without its worker threads.

kazoo hands every answer and every event to worker threads of its own, and each hand-over between
threads costs as much as the answer took to travel. Here what is to be done with an answer is given
along with the request, and runs at once in the connection's thread. It must be quick, and must not
wait.

This is the only module that knows kazoo's insides: `_call`, which takes a request and whom to tell,
`_invoke`, to learn the session timeout that the server gave, `_safe_close`, not to wait in vain, and
`_xid`, `_read_response` and `_connect_attempt`: what ends the connection's thread ends all our locks.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import (
    Connect,
    Create2,
    Delete,
    GetChildren2,
    GetData,
    SetData,
    Sync,
)
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ...events import report
from .address import Address

__all__ = [
    "BadVersionError",
    "Client",
    "EventType",
    "KazooException",
    "KazooState",
    "NoNodeError",
    "NodeExistsError",
    "Reply",
    "Unanswered",
    "create",
    "create_container",
    "delete",
    "get_children",
    "get_data",
    "set_data",
    "sync",
]

Unanswered = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError)
"""The request may have been carried out, or not."""

EPHEMERAL, SEQUENTIAL, CONTAINER = 1, 2, 4

GREETING = 2.0
"""Seconds that a node has to greet us, at least."""
RETRY_FIRST, RETRY_LONGEST = 0.03, 0.5
"""Seconds between rounds through the servers that could not be reached."""

# Kazoo says at DEBUG what it sends, credentials included; that must never be on.
_log = logging.getLogger("holdfast.zookeeper")
_log.setLevel(logging.INFO)
_log.addHandler(logging.NullHandler())


class Reply:
    """Whom to tell what was answered: once, with the value or with the error."""

    __slots__ = ("_lost", "_then")

    def __init__(
        self, then: Callable[[Any, Exception | None], None], lost: Callable[[], None]
    ) -> None:
        self._then: Callable[[Any, Exception | None], None] | None = then
        self._lost = lost

    def set(self, value: Any = None) -> None:
        self._tell(value, None)

    def set_exception(self, error: Exception) -> None:
        if isinstance(error, Unanswered):
            self._lost()  # before whoever is told has the idea to ask again at once
        self._tell(None, error)

    def _tell(self, value: Any, error: Exception | None) -> None:
        then, self._then = self._then, None
        if then is not None:
            try:
                then(value, error)
            except Exception as failure:  # it must not end the connection's thread
                report("an answer of ZooKeeper could not be dealt with", failure)


class _Container(Create2):  # type: ignore[misc]
    """Created as Create2 does, but removed by the server some time after its last child has gone."""

    type = 19


class _Bell:
    """What wakes the connection's thread: a count of requests that it has still to send.

    Kazoo's own, a pair of sockets, is full after some 270 of them; whoever sends more at once has
    to wait for that thread, which may be waiting for what the sender has locked.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)

    def fileno(self) -> int:
        return self._fd

    def send(self, data: bytes) -> None:
        os.eventfd_write(self._fd, len(data))

    def recv(self, size: int) -> None:
        os.eventfd_read(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """No worker threads: whatever happens is dealt with in the connection's own."""

    running = False

    def __init__(self, longest_connect: float) -> None:
        super().__init__()
        self._longest_connect = longest_connect

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_socket_pair(self) -> tuple[_Bell, _Bell]:
        bell = _Bell()
        return bell, bell

    def create_connection(self, *args: Any, timeout: float, **options: Any) -> Any:
        # Kazoo gives a server that does not answer the whole session timeout: then it is over.
        return super().create_connection(
            *args, timeout=min(timeout, self._longest_connect), **options
        )

    def select(
        self, readers: Any, writers: Any, _: Any, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `select.select`, for any number of descriptors; called several times per request."""
        poll = select.poll()
        for one in readers:
            poll.register(one, select.POLLIN)
        for one in writers:
            poll.register(one, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else ceil(timeout * 1000))}
        if not ready:
            return [], [], []
        return (
            [one for one in readers if one.fileno() in ready],
            [one for one in writers if one.fileno() in ready],
            [],
        )


class _Connection(ConnectionHandler):  # type: ignore[misc]
    negotiated = 0.0
    """The session timeout that the server gave, in seconds."""
    greeted = 0.0
    """When we last asked to be let in and were: the session was alive for the leader then."""
    longest_greeting = 0.0
    now: Callable[[], float]
    _last_xid = 0

    @property
    def _xid(self) -> int:
        """The number of the last request. Kazoo starts again with each connection. But a node to which
        a session has moved may still be told of what was agreed to on its old one, and takes that
        for the answer to a request of the same number and kind: a creation would be told another's
        path. So no number is used twice."""
        return self._last_xid

    @_xid.setter
    def _xid(self, number: int) -> None:
        if number:
            self._last_xid = number

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            # Nor is a server that takes the connection and says nothing worth the session.
            asked = self.now()
            answer = super()._invoke(min(timeout, self.longest_greeting), request, xid)
            self.negotiated = answer[0].time_out / 1000
            self.greeted = asked
            return answer
        return super()._invoke(timeout, request, xid)

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        pending = self.client._pending
        if not pending or pending[0][2] != header.xid:
            # An answer has got lost on the way. Kazoo would give the next request this one, and end.
            raise ConnectionDropped("an answer to something else")
        return super()._read_response(header, buffer, offset)

    def _connect_attempt(self, *args: Any) -> Any:
        try:
            return super()._connect_attempt(*args)
        except Exception:
            # Kazoo has logged it, and would let its thread end, and with it whatever is on this
            # session. On to the next node.
            self.client._session_callback(KeeperState.CONNECTING)
            return None


class Client(KazooClient):  # type: ignore[misc]
    """One session. `on_state` is told by kazoo's words CONNECTED, SUSPENDED and LOST; `on_lost` at
    the first request that the loss of a connection leaves unanswered."""

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
            handler=_Handler(timeout / 3 / hosts),
            auth_data=[("digest", address.credentials)] if address.credentials else None,
            sasl_options=dict(address.sasl) if address.sasl else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_FIRST, backoff=2, max_delay=RETRY_LONGEST
            ),
            logger=_log,
        )
        known = address.credentials or address.sasl
        self.acl: Sequence[Any] = CREATOR_ALL_ACL if known else OPEN_ACL_UNSAFE
        self._connection = _Connection(
            self,
            self._conn_retry.copy(),
            logger=_log,
            sasl_options=dict(address.sasl) if address.sasl else None,
        )
        self._connection.now = now
        self._connection.longest_greeting = max(GREETING, timeout / 10)
        self.add_listener(on_state)
        self._on_lost = on_lost

    @property
    def negotiated(self) -> float:
        negotiated: float = self._connection.negotiated
        return negotiated

    @property
    def greeted(self) -> float:
        greeted: float = self._connection.greeted
        return greeted

    @property
    def session(self) -> int:
        """The id of the session; 0 before there is one."""
        return self._session_id or 0

    def send(self, request: Any, then: Callable[[Any, Exception | None], None]) -> None:
        """In the order of the calls. `then` may be called before this returns, if it cannot be sent."""
        self._call(request, Reply(then, self._on_lost))

    @property
    def waiting(self) -> bool:
        """Whether something was sent and has not been answered."""
        return bool(self._pending)

    def drop(self) -> None:
        """Break the connection, to look for another node; the session stays."""
        sock = self._connection._socket
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Close the session and wait for that. Blocks, for a moment where the server answers."""
        try:
            self.stop()
            self.close()
        except Exception as error:  # it could not be reached: the session ends by itself
            _log.info("closing: %s", error)

    def _safe_close(self) -> None:
        if not self.connected:
            self.drop()  # a greeting may be under way that nobody waits for any more
        super()._safe_close()


# The requests.


def create(client: Client, path: str, data: bytes, flags: int = 0) -> Any:
    return Create2(path, data, client.acl, flags)


def create_container(client: Client, path: str) -> Any:
    return _Container(path, b"", client.acl, CONTAINER)


def delete(path: str) -> Any:
    return Delete(path, -1)


def set_data(path: str, data: bytes, version: int = -1) -> Any:
    return SetData(path, data, version)


def get_data(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetData(path, watcher)


def get_children(path: str, watcher: Callable[[Any], None] | None = None) -> Any:
    return GetChildren2(path, watcher)


def sync(path: str) -> Any:
    return Sync(path)
