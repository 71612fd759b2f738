"""Opening a connection to a server, in both worlds: one time limit for all that it takes.

A name may stand for several addresses. Each is given its share of the time that is left, so that one
which does not answer leaves time for those behind it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ....forked_sockets import end_in_children
from ....interrupts import let_through
from ...connecting import connecting
from ...resolving import resolve, resolve_in_loop, why_late
from ...tls import in_words, unanswered

if TYPE_CHECKING:
    import asyncio
    import ssl

Made = TypeVar("Made", bound="asyncio.BaseProtocol")


class Destination(Protocol):
    """The place that a connection leads to."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def path(self) -> str:
        """The path of a unix socket; empty for TCP."""
        ...

    @property
    def tls(self) -> ssl.SSLContext | None: ...


_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""The TCP keepalive: idle seconds, seconds between probes, probes; where the system has them."""
_LEAST = 0.001
_NO_ADDRESS = "its name stands for no address"


def unreached(address: Destination) -> str:
    """Returns what to say of a server that could not be reached in time."""
    return why_late(address.host, address.port) or unanswered(address.tls)


def prepare(sock: socket.socket) -> None:
    """Sets the options of a new socket.

    Small writes are sent at once. An idle socket is probed: otherwise a router on the way may silently
    forget it, and the next command would wait in vain.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def open_socket(address: Destination, deadline: float, now: Callable[[], float]) -> socket.socket:
    """Returns a socket that is connected to `address`, TLS included; raises `OSError`.

    Its time-out is whatever was left of the time: the caller sets its own.
    """
    if address.path:
        return _connected(socket.AF_UNIX, address.path, deadline - now())
    sock = _open_tcp(address, deadline, now)
    try:
        prepare(sock)
        if address.tls is None:
            return sock
        sock.settimeout(max(_LEAST, deadline - now()))
        try:
            with connecting():
                sock = secured = address.tls.wrap_socket(
                    sock, server_hostname=address.host, do_handshake_on_connect=False
                )
                end_in_children(sock)
                secured.do_handshake()
                return sock
        except OSError as error:
            let_through(error)
            raise in_words(error, address.tls) from None
    except BaseException:
        sock.close()
        raise


def _open_tcp(address: Destination, deadline: float, now: Callable[[], float]) -> socket.socket:
    found = resolve(address.host, address.port, deadline, now)
    reason = OSError(_NO_ADDRESS)
    for left, (family, where) in zip(range(len(found), 0, -1), found, strict=True):
        try:
            return _connected(family, where, (deadline - now()) / left)
        except OSError as error:
            let_through(error)
            reason = error
    raise reason


def _connected(family: int, where: Any, timeout: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        end_in_children(sock)
        sock.settimeout(max(_LEAST, timeout))
        sock.connect(where)
    except BaseException:
        sock.close()
        raise
    return sock


async def open_protocol(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], Made],
    address: Destination,
    deadline: float,
    now: Callable[[], float],
) -> Made:
    """Returns the protocol that `make` made, connected to `address`, TLS included.

    Raises `OSError`, which a `TimeoutError` is.
    """
    import asyncio

    try:
        async with asyncio.timeout(max(0.0, deadline - now())):
            if address.path:
                return (await loop.create_unix_connection(make, address.path))[1]
            return await _open_protocol(loop, make, address, deadline, now)
    except TimeoutError:
        raise TimeoutError(unreached(address)) from None


async def _open_protocol(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], Made],
    address: Destination,
    deadline: float,
    now: Callable[[], float],
) -> Made:
    import asyncio

    host, port, tls = address.host, address.port, address.tls
    found = await resolve_in_loop(loop, host, port)
    reason = OSError(_NO_ADDRESS)
    for left, (family, where) in zip(range(len(found), 0, -1), found, strict=True):
        try:
            async with asyncio.timeout((deadline - now()) / left):
                made = await loop.create_connection(
                    make,
                    _with_scope(where),
                    int(where[1]),
                    family=family,
                    ssl=tls,
                    server_hostname=host if tls is not None else None,
                )
                return made[1]
        except OSError as error:
            reason = in_words(error, tls)
    raise reason


def _with_scope(where: Any) -> str:
    """Returns the address as text; one of IPv6 may be known on one of our interfaces only."""
    scope = where[3] if len(where) > 3 else 0
    return f"{where[0]}%{scope}" if scope and "%" not in where[0] else str(where[0])
