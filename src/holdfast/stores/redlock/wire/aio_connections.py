"""The asyncio connections to the nodes: a *link* to each, and the questions that travel on it.

The twin is `lanes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from ....clock import Clock
from ....errors import BackendUnavailable
from ...redis.address import Address
from ...redis.wire.pipelined_connection import TOGETHER, Connection
from ...redis.wire.protocol import NOTHING, Late, Lost, check_greeting, greeting
from ...redis.wire.reply import Reply
from ...redis.wire.sockets import open_protocol
from ..commands import Part
from ..membership import Board, run_id_of, why

if TYPE_CHECKING:
    from .aio import Fan

LONGEST_RUN = 32
"""Questions in one command. The server answers none of them before it has dealt with all."""
Heard = Callable[[int, Any], bool]
"""Called with each node's answer, or the error that it is without; True: enough."""


class Link:
    """The connection to one node, and how to get it again. It stands where `Connection` has a wire."""

    def __init__(self, fan: Fan, index: int, address: Address) -> None:
        self.fan = fan
        self._index = index
        self._address = address
        self._name = str(address)
        self.connection: NodeConnection | None = None
        self._opening: NodeConnection | None = None
        self.run_id = b""
        """Of the server at its other end."""

    async def reach(self, deadline: float) -> list[Any]:
        """The answers to the fan's first questions, on the connection there is or a new one."""
        if self.connection is not None:
            return await self.fan.batch(self._index, self.fan.first, deadline)
        connection = self._opening = await self._connect(deadline)
        try:
            self.fan.check()  # it may have been shut meanwhile
            hello = greeting(self._address)
            replies = await all_of(connection.send_all([*hello, *self.fan.first], deadline))
            check_greeting(replies[: len(hello)], self._address)
            answers = replies[len(hello) :]
        except BaseException:
            connection.abort()
            raise
        finally:
            self._opening = None
        if connection.dead or self.fan.closed:
            connection.abort()
            raise self.broken()
        self.connection = connection
        self.run_id = run_id_of(answers[0])
        self.fan.changed()
        return answers

    def shut(self) -> None:
        for connection in (self.connection, self._opening):
            if connection is not None:
                connection.abort()

    async def _connect(self, deadline: float) -> NodeConnection:
        fan, address = self.fan, self._address
        loop = asyncio.get_running_loop()

        def make() -> NodeConnection:
            return NodeConnection(self, loop, fan.clock, self._index)

        try:
            return await open_protocol(loop, make, address, deadline, fan.clock.now)
        except TimeoutError:
            raise BackendUnavailable(f"{address} did not answer in time") from None
        except OSError as error:
            raise BackendUnavailable(f"{address} cannot be reached: {error}") from error

    # Called by the connection.

    def hear(self, ticket: object) -> None:
        """Nobody waits to be woken here: `redlock_bells` has connections of its own for that."""

    def woken(self, message: bytes) -> None:
        """The same."""

    def lost(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None
            self.fan.changed()
            self.fan.board.failed(self._index, "its connection broke")

    def broken(self) -> Lost:
        return Lost(f"the connection to {self._name} broke")

    def late(self) -> Late:
        return Late(f"{self._name} did not answer in time")


class Asking(Reply):
    """A question to several nodes. Who asked awaits this: until enough of them have answered."""

    __slots__ = ("allowed", "board", "heard", "left")

    def __init__(
        self, board: Board, loop: asyncio.AbstractEventLoop, heard: Heard, allowed: float
    ) -> None:
        Reply.__init__(self, loop)
        self.board = board
        self.heard = heard
        self.left = 0
        self.allowed = allowed
        """Seconds for the answers."""

    def answered(self, index: int, reply: Any) -> None:
        """Only from a callback of the event loop: it may resume the task that asked."""
        self.left -= 1
        if self.heard(index, reply) or self.left == 0:
            self.settle(None)

    def failed(self, index: int, error: Exception) -> None:
        if type(error) is not Late or self.board.had_time(self.allowed):
            self.board.failed(index, why(error))
        self.answered(index, error)


class Answer(Reply):
    """Stands for one node's answer to it where that is overdue, or will never come."""

    __slots__ = ("_asking", "_index", "_over")

    def __init__(self, asking: Asking, index: int) -> None:
        self._asking = asking
        self._index = index
        self._over = False

    @property
    def settled(self) -> bool:
        return self._over

    def settle(self, value: Any) -> None:
        if not self._over:
            self._over = True
            if isinstance(value, Exception):
                self._asking.failed(self._index, value)
            else:
                self._asking.answered(self._index, value)

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        if not self._over:
            self._over = True
            asking = self._asking
            if isinstance(error, Exception):
                asking._loop.call_soon(asking.failed, self._index, error)
            else:
                asking._loop.call_soon(asking.answered, self._index, value)


class Run(Reply):
    """Several questions that go to one node in one command: a list answers all of them."""

    __slots__ = (
        "_arguments",
        "_askings",
        "_at",
        "_index",
        "_keys",
        "_kind",
        "_last",
        "_over",
        "_told",
    )

    def __init__(self, index: int, part: Part, asking: Asking, at: int) -> None:
        self._loop = asking._loop
        self._index = index
        self._kind = part.kind
        self._last = part.last[index]
        self._keys = [part.keys]
        self._arguments = [part.arguments]
        self._askings = [asking]
        self._at = at
        self._over = False
        self._told: Iterator[tuple[Asking, Any]] = iter(())

    @property
    def settled(self) -> bool:
        return self._over

    def takes(self, part: Part, asking: Asking) -> bool:
        """Whether one more goes with it."""
        if part.kind is not self._kind or part.last[self._index] != self._last:
            return False
        self._keys.append(part.keys)
        self._arguments.append(part.arguments)
        self._askings.append(asking)
        return True

    def full(self) -> bool:
        return len(self._askings) >= LONGEST_RUN

    def put_into(self, unsent: list[bytes]) -> None:
        """In the place of the first of them, which would be right if it were alone."""
        if len(self._askings) > 1:
            unsent[self._at] = self._kind.pack(self._keys, self._arguments, self._last)

    def settle(self, value: Any) -> None:
        if self._over:
            return
        self._over = True
        askings = self._askings
        if type(value) is not list or len(askings) == 1:  # one answer; or an error, for all
            value = [value] * len(askings)
        self._told = zip(askings, value, strict=True)
        self._tell()

    def _tell(self) -> None:
        try:
            for asking, reply in self._told:
                if type(reply) is not int and isinstance(reply, Exception):
                    asking.failed(self._index, reply)
                else:
                    asking.answered(self._index, reply)
        except BaseException:
            # A task raised what ends the event loop. If that goes on, so does the rest.
            self._loop.call_soon(self._tell)
            raise

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        if not self._over:
            self._over = True
            reason = error if isinstance(error, Exception) else BackendUnavailable(repr(value))
            for asking in self._askings:
                self._loop.call_soon(asking.failed, self._index, reason)


class NodeConnection(Connection):
    """It knows whose it is, so that one object may wait for the answers of all nodes."""

    def __init__(
        self, link: Link, loop: asyncio.AbstractEventLoop, clock: Clock, index: int
    ) -> None:
        super().__init__(link, loop, clock)
        self._index = index
        self._fan = link.fan
        self._run: Run | None = None
        """The last of what is unsent, if more may go with it."""
        self._runs: list[Run] = []

    def send(self, command: bytes, deadline: float, reply: Reply | None = None) -> Reply:
        self._run = None  # nothing overtakes this
        return super().send(command, deadline, reply)

    def _start_run(self, question: tuple[Asking, float], part: Part) -> tuple[Reply, float]:
        run = self._run = Run(self._index, part, question[0], len(self._unsent))
        self._runs.append(run)
        return run, question[1]

    def _flush(self) -> None:
        if self._runs:
            for run in self._runs:
                run.put_into(self._unsent)
            self._runs.clear()
        self._run = None
        super()._flush()

    def put(self, command: bytes, question: tuple[Asking, float], part: Part | None) -> None:
        """As `send`, for one who asks several; together with others' parts of the same kind."""
        pending, unsent = self._pending, self._unsent
        entry: tuple[Reply, float] = question
        if unsent:
            run = self._run
            if part is not None and run is not None and run.takes(part, question[0]):
                if run.full():
                    self._flush()
                return
            self._run = None
            if part is not None:
                entry = self._start_run(question, part)
            unsent.append(command)
            if len(unsent) >= TOGETHER:
                self._flush()
        elif self.dead:
            self._loop.call_soon(question[0].failed, self._index, self._user.broken())
            return
        elif pending:
            if part is not None:
                entry = self._start_run(question, part)
            unsent.append(command)
            self._loop.call_soon(self._flush)
        else:
            self._write(command)
        pending.append(entry)
        if question[1] < self._timer_due:
            self._arm(question[1])

    def _answer(self) -> None:
        gets, push, pending, index = self._gets, self._push, self._pending, self._index
        try:
            while (answer := gets()) is not NOTHING:
                if type(answer) is push or not pending:
                    continue  # an answer to nothing, which cannot be ours
                who = pending.popleft()[0]
                if type(who) is not Asking:
                    who.settle(answer)
                elif type(answer) is not int and isinstance(answer, Exception):
                    who.failed(index, answer)
                else:  # `answered`, in short
                    who.left -= 1
                    if who.heard(index, answer) or who.left == 0:
                        who.settle(None)
        except self._nonsense:
            self.abort()  # nothing that follows could be understood
        except BaseException:
            # A task raised what ends the event loop. If that goes on, so does the rest.
            self._loop.call_soon(self._answer)
            raise

    def _arm(self, due: float) -> None:
        self._timer_due = due
        self._fan.look_at(self, due)

    def look(self) -> None:
        """It is time to, for this connection or for another."""
        self._timer_due = inf
        if self._pending and not self.dead:
            self._look()

    def _end(self) -> None:
        self._stand_in(inf)
        self._runs.clear()
        self._run = None
        super()._end()

    def _stand_in(self, until: float) -> None:
        """Each of them is told once, and by whom."""
        pending = self._pending
        for i, (who, deadline) in enumerate(pending):
            if deadline <= until and type(who) is Asking:
                pending[i] = (Answer(who, self._index), deadline)


async def all_of(replies: list[Reply]) -> list[Any]:
    """Of one connection, which answers in order: to wait for the last is to be woken once."""
    if replies:
        await replies[-1]
    return [reply.result() for reply in replies]
