"""Wake-ups between the managers of one machine: a unix datagram socket for each.

A wake-up is a hint. It may be lost (a full queue, no permission) or come too early or twice; the
truth is in the store, and a waiter's heartbeat finds it without any hint. So a send never blocks, and
a message that names no token makes the receiver ask the store.

A datagram to a dead process is refused by the kernel, which is as good a sign of death as a lock;
but only `presence` decides about that, and GONE merely says that waking was in vain.

A message that is sent and not yet read counts against the *sender's* buffer. One frozen receiver could
fill that of a socket that is used for all, and then no waiter would be woken; so when a queue seems
full, the message is sent again from a new socket, which from then on is the one in use.

A socket's address has room for 107 bytes. A longer path is reached through /proc/self/fd, where
there is one. A forked child closes what it inherits: a dead parent must not seem to be listening.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final, Literal

from ... import forks
from ...errors import BackendUnavailable, ConfigError
from ...interrupts import let_through

if TYPE_CHECKING:
    from _socket import socket as Socket

DELIVERED: Final = "delivered"  # the message is in the receiver's queue
MISSED: Final = "missed"  # not delivered, though the receiver may be alive: its heartbeat will ask
GONE: Final = "gone"  # there is no receiver any more

MAX_PAYLOAD = 512

_ROOM = 107
# More than a queue holds, so that all that was there is read; and an end, should more keep coming.
_MOST = 1024

_numbers = itertools.count(1)
_mutex = threading.Lock()
_sender: _Sender | None = None
_folders: dict[str, int] = {}  # descriptors of folders whose path is too long for an address
_open: weakref.WeakSet[Mailbox] = weakref.WeakSet()


class Mailbox:
    """The socket on which one manager is woken. `address` is its file name in the folder."""

    def __init__(self, directory: str, process_name: str) -> None:
        self._directory = os.path.abspath(directory)
        self._maker = os.getpid()
        self._socket: Socket | None = _new_socket()
        try:
            while True:
                self.address = f"{process_name}-{next(_numbers)}.sock"
                try:
                    self._socket.bind(_reach(self._directory, self.address))
                    break
                except OSError as error:
                    let_through(error)
                    if error.errno != errno.EADDRINUSE:
                        raise BackendUnavailable(
                            f"cannot make the socket {self.address!r} in {self._directory!r}, by "
                            f"which waiters are woken: {error.strerror or error}"
                        ) from error
        except BaseException:
            self._socket.close()
            raise
        _open.add(self)

    def fileno(self) -> int:
        """Returns the descriptor to poll for reading; -1 when closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def duplicate(self) -> int:
        """Returns a descriptor to poll for reading, which is the caller's to close."""
        try:
            return os.dup(self.fileno())
        except OSError as error:
            raise _no_socket(error) from error

    def receive(self, most: int = _MOST) -> list[bytes]:
        """Returns the messages that are there, at most `most`, without waiting."""
        messages: list[bytes] = []
        socket = self._socket
        if socket is None:
            return messages
        try:
            while len(messages) < most:
                messages.append(socket.recv(MAX_PAYLOAD))
        except OSError as error:
            let_through(error)
            # EBADF: closed meanwhile, by another thread, or by the fork of this process.
            if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EBADF):
                raise BackendUnavailable(f"cannot read {self.address!r}: {error}") from error
        return messages

    def close(self) -> None:
        """Stops listening, and removes the socket's file. Safe to call again."""
        socket = self._socket
        if socket is None:
            return
        # The file first: a sender then finds no receiver, rather than a socket that nobody reads.
        if self._maker == os.getpid():
            try:
                os.unlink(f"{self._directory}/{self.address}")
            except OSError as error:
                let_through(error)
        socket.close()
        self._socket = None  # last: a call that is interrupted is made again

    def _abandon(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()


def send(directory: str, address: str, payload: bytes) -> Literal["delivered", "missed", "gone"]:
    """Sends a message to the mailbox `address` in `directory` (absolute); returns what became of it.

    Never blocks, and never raises because of the receiver.
    """
    global _sender
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a wake-up has at most {MAX_PAYLOAD} bytes, not {len(payload)}")
    sender = _sender
    if sender is None:
        sender = _sender = _Sender(_new_socket())
    target = _reach(directory, address)
    try:
        try:
            sender.socket.sendto(payload, target)
        except BlockingIOError as error:
            let_through(error)
            sender = _sender = _Sender(_new_socket())
            sender.socket.sendto(payload, target)
    except (FileNotFoundError, ConnectionRefusedError):
        return GONE
    except OSError as error:
        let_through(error)
        return MISSED
    return DELIVERED


class _Sender:
    """An unbound socket, closed when the last thread that is sending by it is through."""

    __slots__ = ("socket",)

    def __init__(self, socket: Socket) -> None:
        self.socket = socket

    def __del__(self) -> None:
        self.socket.close()


def _reach(directory: str, address: str) -> str:
    """Returns a path to that socket that fits into an address."""
    path = f"{directory}/{address}"
    if len(path) <= _ROOM and (path.isascii() or len(os.fsencode(path)) <= _ROOM):
        return path
    folder = _folders.get(directory)
    if folder is None:
        if not os.path.isdir("/proc/self/fd"):
            raise ConfigError(
                f"the path {path!r} has {len(os.fsencode(path))} bytes, and a socket's address has "
                f"room for {_ROOM} on this system; put the store in a folder with a shorter name"
            )
        with _mutex:
            folder = _folders.get(directory)
            if folder is None:
                try:
                    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                except OSError as error:
                    let_through(error)
                    raise BackendUnavailable(f"cannot open {directory!r}: {error}") from error
                _folders[directory] = folder
    return f"/proc/self/fd/{folder}/{address}"


def _new_socket() -> Socket:
    # The bare module: `socket` costs 5 ms more to import, for classes that are not needed here.
    import _socket

    try:
        made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)  # close-on-exec, as all are
    except OSError as error:
        raise _no_socket(error) from error
    made.setblocking(False)
    return made


def _no_socket(error: OSError) -> BackendUnavailable:
    let_through(error)
    return BackendUnavailable(f"cannot make a socket to wake others: {error}")


def _after_fork_in_child() -> None:
    global _sender, _mutex
    _mutex = threading.Lock()
    _sender = None
    for mailbox in list(_open):
        mailbox._abandon()


forks.in_child(_after_fork_in_child)
