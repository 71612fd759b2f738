"""Sockets of blocking code that are waited for with poll, so no signal prolongs a wait.

Everything from looking up the name to the end of the TLS handshake has one deadline. The clock is
looked at after each return from poll.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from errno import EINPROGRESS
from math import ceil
from os import strerror

from ..forked_sockets import end_in_children
from ..interrupts import let_through
from .connecting import connecting
from .redis.wire.sockets import prepare
from .resolving import Place, resolve
from .tls import in_words, unanswered

Socket = socket.socket | ssl.SSLSocket
Now = Callable[[], float]

LONGEST_POLL = 1.0
"""Seconds after which the clock is looked at again: a poll stands still with a suspended machine."""


class Late(Exception):
    """Raised when the deadline has come first."""


def open_socket(
    host: str, port: int, tls: ssl.SSLContext | None, deadline: float, now: Now
) -> Socket:
    """Returns a socket that is connected, TLS included; raises `OSError` or `Late`.

    A name may stand for several addresses. Each is given its share of the time that is left.
    """
    found = resolve(host, port, deadline, now)
    reason: Exception = OSError("its name stands for no address")
    for left, place in zip(range(len(found), 0, -1), found, strict=True):
        moment = now()
        until = moment + (deadline - moment) / left
        try:
            return _connected(place, host, tls, until, now)
        except (OSError, Late) as error:
            let_through(error)
            reason = error
    raise reason


def _connected(
    place: Place, host: str, tls: ssl.SSLContext | None, deadline: float, now: Now
) -> Socket:
    family, where = place
    sock: Socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        end_in_children(sock)
        sock.setblocking(False)
        error = sock.connect_ex(where)
        if error == EINPROGRESS:
            wait_for(sock, select.POLLOUT, deadline, now)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, strerror(error))
        prepare(sock)
        if tls is not None:
            with connecting():
                sock = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                end_in_children(sock)
                _shake_hands(sock, tls, deadline, now)
        return sock
    except BaseException:
        sock.close()
        raise


def _shake_hands(sock: ssl.SSLSocket, tls: ssl.SSLContext, deadline: float, now: Now) -> None:
    try:
        while True:
            try:
                sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                wait_for(sock, select.POLLIN, deadline, now)
            except ssl.SSLWantWriteError:
                wait_for(sock, select.POLLOUT, deadline, now)
    except Late:
        raise TimeoutError(unanswered(tls)) from None
    except OSError as error:
        let_through(error)
        raise in_words(error, tls) from None


def wait_for(sock: Socket, event: int, deadline: float, now: Now) -> None:
    """Waits until `sock` is ready; raises `Late` once the deadline has come."""
    poller = select.poll()
    poller.register(sock.fileno(), event)
    while not poller.poll(milliseconds(deadline - now())):
        if now() >= deadline:
            raise Late


def milliseconds(left: float) -> int:
    """Returns the time for a poll by someone who has `left` seconds."""
    return ceil(min(max(left, 0.0), LONGEST_POLL) * 1000)


def send_all(sock: Socket, data: bytes, deadline: float, now: Now) -> None:
    """Sends all of `data`; raises `OSError` or `Late`."""
    while data:
        try:
            sent = sock.send(data)
            if sent == len(data):
                return
            data = data[sent:]
        except (BlockingIOError, ssl.SSLWantWriteError) as error:
            let_through(error)
            wait_for(sock, select.POLLOUT, deadline, now)
        except ssl.SSLWantReadError:
            wait_for(sock, select.POLLIN, deadline, now)
