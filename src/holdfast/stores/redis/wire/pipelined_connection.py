"""One connection in asyncio: the commands of all tasks are pipelined, and replies come in their order.

Wake-ups come between the replies. A task that is cancelled leaves its command where it is, so a command
that is sent behind it takes effect after it.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...._runtime.aio import descriptor
from ....clock import Clock
from ....forked_sockets import end_in_children
from ....model import Granted, quick_new
from ...deadline_timer import DeadlineTimer
from ..address import Address
from .protocol import NOTHING, Late, Lost, check_hello, check_welcome
from .reply import Reply
from .sockets import prepare
from .wakeups import HANDOVER_BYTES, NO_CHANNEL, PING_AHEAD, handed_token, wakeup_prefix

if TYPE_CHECKING:
    from ..._async.contract import Ticket

OVERDUE_LIMIT = 1.0
"""Seconds for which a reply may be overdue before its connection is given up."""
TOGETHER = 128
"""Commands in one write. With more the server would be idle while they are collected."""
CHUNK = 65536
HANDOVER_LIMIT = 0.1
"""Seconds for which a place in the queue may stay unread, in case the wake-up follows it soon."""
LONG_WAIT = 1.0
"""Seconds that an attempt must have left for its place in the queue to be read together with the
wake-up."""


class WireCallbacks(Protocol):
    """The wire that a connection belongs to, as the connection sees it."""

    def hear(self, ticket: Ticket) -> None:
        """Prepares for the wake-up of `ticket`."""
        ...

    def woken(self, message: bytes) -> None:
        """Takes a message that was published on our channel."""
        ...

    def lost(self, connection: Any) -> None:
        """Takes note that `connection` has ended."""
        ...

    def broken(self) -> Lost: ...

    def late(self) -> Late: ...


class DiscardedReply(Reply):
    """A reply that nobody awaits, to a command that was only sent along."""

    __slots__ = ()

    settled = True

    def __init__(self) -> None:
        pass

    def settle(self, value: Any) -> None:
        pass

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        pass


DISCARDED = DiscardedReply()


@cache
def _driver() -> tuple[Any, Any, Any]:
    """Returns what we use of hiredis, which is imported when it is first needed."""
    from hiredis import ProtocolError, PushNotification, Reader

    return ProtocolError, PushNotification, Reader


class Connection(asyncio.BufferedProtocol):
    """A connection, and the commands and replies under way on it."""

    def __init__(self, user: WireCallbacks, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        nonsense, push, make_reader = _driver()
        self._user = user
        self._loop = loop
        self._now = clock.now
        reader = make_reader(notEnoughData=NOTHING)
        self._feed: Callable[..., None] = reader.feed
        self._gets = reader.gets
        # One buffer for all reads: the loop would otherwise allocate a quarter of a megabyte for each.
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)
        self._push = push
        self._nonsense: type[Exception] = nonsense
        self._pending: deque[tuple[Reply, float]] = deque()
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._write: Callable[[bytes], None]
        self._timer = DeadlineTimer(loop, self._now, self._first_deadline, self._expire)
        self._sole_acquire: Ticket | None = None
        """The ticket whose acquire is the only command under way, if a wake-up may come with it."""
        self._socket: socket.socket | None = None
        """The socket, where `SO_RCVLOWAT` can be set."""
        self._lowat = 1
        self._lowat_timer: asyncio.TimerHandle | None = None
        self.channel = NO_CHANNEL
        self._wakeup_prefix = b""
        """The beginning of a wake-up, see `handed_token`."""
        self.dead = False

    def set_channel(self, channel: bytes) -> None:
        self.channel = channel
        self._wakeup_prefix = wakeup_prefix(channel)

    def send(self, command: bytes, deadline: float, reply: Reply | None = None) -> Reply:
        """Sends a command. Commands that are sent while others are under way go out together."""
        if reply is None:
            reply = Reply(self._loop)
        if self._lowat != 1:
            self._set_lowat(1)
        pending, unsent = self._pending, self._unsent
        if unsent:
            unsent.append(command)
            if len(unsent) >= TOGETHER:
                self._flush()
        elif self.dead:
            reply.settle_soon(None, self._user.broken())
            return reply
        elif pending:
            unsent.append(command)
            self._loop.call_soon(self._flush)
        else:
            self._write(command)
        pending.append((reply, deadline))
        if deadline < self._timer.due:
            self._timer.arm(deadline)
        return reply

    def send_all(self, commands: Sequence[bytes], deadline: float) -> list[Reply]:
        """Sends `commands` in one write, if nothing else is under way."""
        if self._pending or self._unsent or self.dead or not commands:
            return [self.send(command, deadline) for command in commands]
        if self._lowat != 1:
            self._set_lowat(1)
        replies = [Reply(self._loop) for _ in commands]
        self._write(b"".join(commands))
        self._pending.extend([(reply, deadline) for reply in replies])
        if deadline < self._timer.due:
            self._timer.arm(deadline)
        return replies

    def send_after_ping(self, command: bytes, deadline: float) -> Reply:
        """Sends a command behind `PING_AHEAD`, if nothing else is under way."""
        if self._pending or self.dead:
            return self.send(command, deadline)
        self._pending.append((DISCARDED, deadline))
        return self._send_alone(PING_AHEAD + command, deadline)

    def acquire(self, ticket: Ticket, command: bytes, deadline: float) -> Reply:
        """Sends the acquire of a lock. If no other reply is under way, the place in the queue stays
        unread for a moment, to be read together with the wake-up: see `HANDOVER_BYTES`.
        """
        until = ticket.until
        barge = ticket.terms.barge
        if self._pending or self.dead or barge or (until and until - self._now() < LONG_WAIT):
            self._user.hear(ticket)
            return self.send(command, deadline)
        self._sole_acquire = ticket
        if self._lowat != HANDOVER_BYTES and self._socket is not None:
            self._set_lowat(HANDOVER_BYTES)
        return self._send_alone(command, deadline)

    def _send_alone(self, command: bytes, deadline: float) -> Reply:
        self._write(command)
        reply = Reply(self._loop)
        self._pending.append((reply, deadline))
        if deadline < self._timer.due:
            self._timer.arm(deadline)
        return reply

    def _set_lowat(self, lowat: int) -> None:
        """Sets the number of bytes at which the socket becomes readable, for a moment if above 1."""
        assert self._socket is not None
        assert self._transport is not None
        self._lowat = lowat
        with suppress(OSError):  # it is closed, which we are told soon
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, lowat)
        if lowat != 1:
            if self._lowat_timer is None:
                self._lowat_timer = self._loop.call_later(HANDOVER_LIMIT, self._reset_lowat)
        elif self._pending:
            # Not every system checks again by itself what has come already.
            self._transport.pause_reading()
            self._transport.resume_reading()

    def _reset_lowat(self) -> None:
        self._lowat_timer = None
        if self._lowat != 1:
            self._set_lowat(1)

    def _flush(self) -> None:
        if self._unsent:
            unsent = b"".join(self._unsent)
            self._unsent.clear()
            self._write(unsent)

    def abort(self) -> None:
        """Closes the connection at once, whatever was still to be written."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def is_hung_up(self) -> bool:
        """Returns whether the server has closed the connection, also if the loop has yet to notice."""
        fd = self.fileno()
        if self.dead or fd < 0:
            return self.dead
        poller = select.poll()
        poller.register(fd, getattr(select, "POLLRDHUP", 0))
        return bool(poller.poll(0))

    def fileno(self) -> int:
        return descriptor(self._transport)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: other event loops have transports of their own.
        self._transport = cast(asyncio.Transport, transport)
        end_in_children(self)
        self._write = self._transport.write
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            with suppress(OSError):  # it is closed, which we are told soon
                prepare(sock)
        if (
            transport.get_extra_info("sslcontext") is None
        ):  # TLS records have other lengths than what is in them
            self._socket = sock

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view  # TLS reads into slices of it: those of the buffer itself would be copies

    def buffer_updated(self, nbytes: int) -> None:
        if self._sole_acquire is not None and self._handed_over(nbytes, self._sole_acquire):
            return
        self._feed(self._buffer, 0, nbytes)
        self._answer()

    def _handed_over(self, nbytes: int, ticket: Ticket) -> bool:
        self._sole_acquire = None
        reply = self._pending[0][0]
        token = handed_token(
            bytes(self._view[:nbytes]), self._wakeup_prefix + ticket.owner.encode()
        )
        if token:
            self._pending.popleft()
            reply.settle(quick_new(Granted, (token, ticket.ttl, True, 0.0, None)))
            return True
        if not reply.settled:  # its task still waits for it
            self._user.hear(ticket)
        return False

    def _answer(self) -> None:
        gets, push, pending = self._gets, self._push, self._pending
        try:
            while (reply := gets()) is not NOTHING:
                if type(reply) is push and reply[0] != b"subscribe":
                    if reply[0] == b"message":
                        self._user.woken(reply[2])
                elif pending:  # else a reply to no command, which cannot be ours
                    pending.popleft()[0].settle(reply)
        except self._nonsense:
            self.abort()  # nothing that follows could be understood
        except BaseException:
            # A task raised an exception that ends the loop. If the loop goes on, so do the others.
            self._loop.call_soon(self._answer)
            raise
        if pending and self._lowat != 1 and self._sole_acquire is None:
            self._set_lowat(1)  # what is still to come may be short

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if self.dead:
            return
        self.dead = True
        self._unsent.clear()
        self._sole_acquire = None
        self._timer.cancel()
        if self._lowat_timer is not None:
            self._lowat_timer.cancel()
            self._lowat_timer = None
        pending = list(self._pending)
        self._pending.clear()
        for reply, _ in pending:
            if not reply.settled:
                reply.settle_soon(None, self._user.broken())
        self._user.lost(self)

    def _stand_in(self, until: float) -> None:
        """Lets a subclass prepare the commands due by `until`, before they are told: no reply came."""

    # The commands whose time is over.

    def _first_deadline(self) -> float:
        return min([deadline for _, deadline in self._pending], default=inf)

    def _expire(self, now: float) -> float:
        self._stand_in(now)
        due = inf
        for reply, deadline in self._pending:
            if deadline <= now:
                if not reply.settled:
                    reply.settle_soon(None, self._user.late())
            elif deadline < due:
                due = deadline
        if self._pending[0][1] <= now:
            # All commands behind this one wait, too. Not for long.
            last_chance = self._pending[0][1] + OVERDUE_LIMIT
            if now >= last_chance:
                self.abort()
                return inf
            due = min(due, last_chance)
        return due


async def check_greeting(replies: Sequence[Reply], address: Address) -> None:
    """Refuses, by its replies to a greeting, a server that does not let us in, or that is too old."""
    check_hello(await replies[0], address)
    for reply in replies[1:]:
        check_welcome(await reply, address)
