"""One connection in asyncio: the commands of all tasks go out together, answers come in their order.

Wake-ups come between the answers. A task that is cancelled leaves its command where it is, so whatever
is sent behind it takes effect after it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

from ....clock import Clock
from ....model import Granted, quick_new
from .protocol import LONG, NO_CHANNEL, NOTHING, PING, Late, Lost, handed, wake_up
from .reply import Reply
from .sockets import prepare

if TYPE_CHECKING:
    from ..._async.contract import Ticket

PATIENCE = 1.0
"""Seconds for which an answer may be overdue before its connection is given up."""
TOGETHER = 128
"""Commands that go out in one write. More would leave the server idle while they are collected."""
CHUNK = 65536
TICK = 0.1
"""Seconds for which the place in the queue may wait for the wake-up."""
PATIENT = 1.0
"""Seconds that one must be ready to wait for, to be told of its place in the queue a moment later."""


class User(Protocol):
    """Whose connection it is."""

    def hear(self, ticket: Ticket) -> None:
        """A wake-up for this one may come soon."""
        ...

    def woken(self, message: bytes) -> None:
        """What was published on our channel."""
        ...

    def lost(self, connection: Any) -> None:
        """It has ended."""
        ...

    def broken(self) -> Lost: ...

    def late(self) -> Late: ...


class Nobody(Reply):
    """Takes the answer to a command that was only sent along."""

    __slots__ = ()

    settled = True

    def __init__(self) -> None:
        pass

    def settle(self, value: Any) -> None:
        pass

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        pass


NOBODY = Nobody()


@cache
def _driver() -> tuple[Any, Any, Any]:
    """Looked for when it is first needed, and not again for each connection."""
    from hiredis import ProtocolError, PushNotification, Reader

    return ProtocolError, PushNotification, Reader


class Connection(asyncio.BufferedProtocol):
    def __init__(self, user: User, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        nonsense, push, make_reader = _driver()
        self._user = user
        self._loop = loop
        self._now = clock.now
        reader = make_reader(notEnoughData=NOTHING)
        self._feed: Callable[..., None] = reader.feed
        self._gets = reader.gets
        # Read into, again and again: for each read the loop would otherwise get a quarter of a
        # megabyte from the system, and give it back.
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)
        self._push = push
        self._nonsense: type[Exception] = nonsense
        self._pending: deque[tuple[Reply, float]] = deque()
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._write: Callable[[bytes], None]
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf
        self._asked: Ticket | None = None
        """Whose question is the only one under way, if it may be answered by a wake-up as well."""
        self._socket: socket.socket | None = None
        """Where the system can be told for how many bytes to wait."""
        self._least = 1
        self._hurry: asyncio.TimerHandle | None = None
        self.channel = NO_CHANNEL
        self._told = b""
        """How a wake-up begins, see `handed`."""
        self.dead = False

    def listens_on(self, channel: bytes) -> None:
        self.channel = channel
        self._told = wake_up(channel)

    def send(self, command: bytes, deadline: float, reply: Reply | None = None) -> Reply:
        """Answered in its turn. What is sent while others wait for answers goes out together."""
        if reply is None:
            reply = Reply(self._loop)
        if self._least != 1:
            self._set_least(1)
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
        if deadline < self._timer_due:
            self._arm(deadline)
        return reply

    def send_all(self, commands: Sequence[bytes], deadline: float) -> list[Reply]:
        """In one write, where nothing else is under way."""
        if self._pending or self._unsent or self.dead or not commands:
            return [self.send(command, deadline) for command in commands]
        if self._least != 1:
            self._set_least(1)
        replies = [Reply(self._loop) for _ in commands]
        self._write(b"".join(commands))
        self._pending.extend([(reply, deadline) for reply in replies])
        if deadline < self._timer_due:
            self._arm(deadline)
        return replies

    def send_after_ping(self, command: bytes, deadline: float) -> Reply:
        """See `PING`. With others' answers under way it would change nothing."""
        if self._pending or self.dead:
            return self.send(command, deadline)
        self._pending.append((NOBODY, deadline))
        return self._send_alone(PING + command, deadline)

    def ask(self, ticket: Ticket, command: bytes, deadline: float) -> Reply:
        """For a lock. Nobody else's answer is kept waiting if this one is waited for together with the
        wake-up, for a moment: one turn of the loop less. If both have come, it is a grant.
        """
        until = ticket.until
        barge = ticket.terms.barge
        if self._pending or self.dead or barge or (until and until - self._now() < PATIENT):
            self._user.hear(ticket)
            return self.send(command, deadline)
        self._asked = ticket
        if self._least != LONG and self._socket is not None:
            self._set_least(LONG)
        return self._send_alone(command, deadline)

    def _send_alone(self, command: bytes, deadline: float) -> Reply:
        self._write(command)
        reply = Reply(self._loop)
        self._pending.append((reply, deadline))
        if deadline < self._timer_due:
            self._arm(deadline)
        return reply

    def _set_least(self, least: int) -> None:
        """Bytes for which the system waits before it tells us of them; for a tick at the most."""
        assert self._socket is not None
        assert self._transport is not None
        self._least = least
        with suppress(OSError):  # it is closed, which we are told soon
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        if least != 1:
            if self._hurry is None:
                self._hurry = self._loop.call_later(TICK, self._hurry_up)
        elif self._pending:
            # Not every system looks again at what has come by itself.
            self._transport.pause_reading()
            self._transport.resume_reading()

    def _hurry_up(self) -> None:
        self._hurry = None
        if self._least != 1:
            self._set_least(1)

    def _flush(self) -> None:
        if self._unsent:
            unsent = b"".join(self._unsent)
            self._unsent.clear()
            self._write(unsent)

    def abort(self) -> None:
        """Now, whatever was still to be written."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asked whether it is one: other event loops have transports of their own.
        self._transport = cast(asyncio.Transport, transport)
        self._write = self._transport.write
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            with suppress(OSError):  # it is closed, which we are told soon
                prepare(sock)
        if (
            transport.get_extra_info("sslcontext") is None
        ):  # there, what is read is not what was sent
            self._socket = sock

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view  # TLS reads into slices of it: those of the buffer itself would be copies

    def buffer_updated(self, nbytes: int) -> None:
        if self._asked is not None and self._handed_over(nbytes, self._asked):
            return
        self._feed(self._buffer, 0, nbytes)
        self._answer()

    def _handed_over(self, nbytes: int, ticket: Ticket) -> bool:
        self._asked = None
        reply = self._pending[0][0]
        token = handed(bytes(self._view[:nbytes]), self._told + ticket.owner.encode())
        if token:
            self._pending.popleft()
            reply.settle(quick_new(Granted, (token, ticket.ttl, True, 0.0)))
            return True
        if not reply.settled:  # it is still wanted
            self._user.hear(ticket)
        return False

    def _answer(self) -> None:
        gets, push, pending = self._gets, self._push, self._pending
        try:
            while (answer := gets()) is not NOTHING:
                if type(answer) is push and answer[0] != b"subscribe":
                    if answer[0] == b"message":
                        self._user.woken(answer[2])
                elif pending:  # otherwise an answer to nothing, which cannot be ours
                    pending.popleft()[0].settle(answer)
        except self._nonsense:
            self.abort()  # nothing that follows could be understood
        except BaseException:
            # A task raised what ends the event loop. If that goes on, so does the rest.
            self._loop.call_soon(self._answer)
            raise
        if pending and self._least != 1 and self._asked is None:
            self._set_least(1)  # what is still to come may be short

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if self.dead:
            return
        self.dead = True
        self._unsent.clear()
        self._asked = None
        for timer in (self._timer, self._hurry):
            if timer is not None:
                timer.cancel()
        self._timer = self._hurry = None
        pending = list(self._pending)
        self._pending.clear()
        for reply, _ in pending:
            if not reply.settled:
                reply.settle_soon(None, self._user.broken())
        self._user.lost(self)

    def _stand_in(self, until: float) -> None:
        """Before those who wait until then are told that no answer came."""

    # One timer for all that waits; it is left alone while answers come.

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - self._now()), self._look)

    def _look(self) -> None:
        self._timer = None
        self._timer_due = inf
        if not self._pending:
            return
        now = self._now()
        first = min([deadline for _, deadline in self._pending])
        if first > now:  # mostly: what it was set for has been answered since
            self._arm(first)
            return
        self._stand_in(now)
        due = None
        for reply, deadline in self._pending:
            if deadline <= now:
                if not reply.settled:
                    reply.settle_soon(None, self._user.late())
            elif due is None or deadline < due:
                due = deadline
        if self._pending[0][1] <= now:
            # Its turn has not come, and all that is behind it waits too. Not for long.
            last_chance = self._pending[0][1] + PATIENCE
            if now >= last_chance:
                self.abort()
                return
            due = last_chance if due is None else min(due, last_chance)
        if due is not None:
            self._arm(due)
