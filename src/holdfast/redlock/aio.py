"""Asking all nodes at once, in asyncio: one connection for each, on which all tasks' commands travel.

The twin is `threads`: the same names and meanings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence
from math import inf
from typing import Any

from ..clock import Clock
from ..errors import BackendUnavailable
from ..redis.address import Address
from ..redis.aio_connection import TOGETHER, Connection
from ..redis.protocol import NOTHING, Late, Lost, check_greeting, greeting
from ..redis.reply import Reply
from .commands import Part
from .standing import Board, run_id_of, why

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
        self.connection: NodeConnection | None = None
        self._opening: NodeConnection | None = None
        self.run_id = b""
        """Of the server at its other end."""

    async def reach(self, by: float) -> list[Any]:
        """The answers to the fan's first questions, on the connection there is or a new one."""
        if self.connection is not None:
            return await self.fan.batch(self._index, self.fan.first, by)
        connection = self._opening = await self._connect(by)
        try:
            self.fan.check()  # it may have been shut meanwhile
            hello = [connection.send(command, by) for command in greeting(self._address)]
            questions = [connection.send(command, by) for command in self.fan.first]
            replies = await _all([*hello, *questions])
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

    async def _connect(self, by: float) -> NodeConnection:
        fan, address = self.fan, self._address
        loop = asyncio.get_running_loop()

        def make() -> NodeConnection:
            return NodeConnection(self, loop, fan.clock, self._index)

        try:
            async with asyncio.timeout(max(0.0, by - fan.clock.now())):
                made = await loop.create_connection(
                    make, address.host, address.port, ssl=address.tls
                )
                return made[1]
        except TimeoutError:
            raise BackendUnavailable(f"{address} did not answer in time") from None
        except OSError as error:
            raise BackendUnavailable(f"{address} cannot be reached: {error}") from error

    # Called by the connection.

    def woken(self, message: bytes) -> None:
        return None

    def lost(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None
            self.fan.changed()
            self.fan.board.failed(self._index, "its connection broke")

    def broken(self) -> Lost:
        return Lost(f"the connection to {self._address} broke")

    def late(self) -> Late:
        return Late(f"{self._address} did not answer in time")


class Asking(Reply):
    """A question to several nodes. Who asked awaits this: until enough of them have answered."""

    __slots__ = ("board", "heard", "left")

    def __init__(self, board: Board, loop: asyncio.AbstractEventLoop, heard: Heard) -> None:
        Reply.__init__(self, loop)
        self.board = board
        self.heard = heard
        self.left = 0

    def answered(self, index: int, reply: Any) -> None:
        """Only from a callback of the event loop: it may resume the task that asked."""
        self.left -= 1
        if self.heard(index, reply) or self.left == 0:
            self.settle(None)

    def failed(self, index: int, error: Exception) -> None:
        self.board.failed(index, why(error))
        self.answered(index, error)


class Answer(Reply):
    """Stands for one node's answer to it where that is overdue, or will never come."""

    __slots__ = ("_asking", "_index", "_over")

    def __init__(self, asking: Asking, index: int) -> None:
        self._asking = asking
        self._index = index
        self._over = False

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
        super().__init__(link, loop, clock)  # type: ignore[arg-type]
        self._index = index
        self._fan = link.fan
        self._run: Run | None = None
        """The last of what is unsent, if more may go with it."""
        self._runs: list[Run] = []

    def send(self, command: bytes, by: float, reply: Reply | None = None) -> Reply:
        self._run = None  # nothing overtakes this
        return super().send(command, by, reply)

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

    def _look(self) -> None:
        self._stand_in()
        super()._look()

    def _end(self) -> None:
        self._stand_in()
        self._runs.clear()
        self._run = None
        super()._end()

    def _stand_in(self) -> None:
        """Before some are told that no answer came: each of them once, and by whom."""
        pending = self._pending
        for i, (who, by) in enumerate(pending):
            if type(who) is Asking:
                pending[i] = (Answer(who, self._index), by)


class Fan:
    def __init__(
        self, addresses: Sequence[Address], board: Board, clock: Clock, first: list[bytes]
    ) -> None:
        self.board = board
        self.clock = clock
        self.first = first
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._links = [Link(self, index, address) for index, address in enumerate(addresses)]
        self._ways: list[NodeConnection | None] = [None] * len(addresses)
        """The links' connections: another list whenever one of them changes."""
        self._waiting: dict[NodeConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf

    async def ask(
        self,
        commands: Sequence[bytes | None],
        heard: Heard,
        by: float,
        ways: Sequence[object] = (),
        answered: Container[int] = (),
        instead: bytes = b"",
        part: Part | None = None,
    ) -> Sequence[object]:
        """Each node its command, all at once; until `heard` has enough, or all have answered.

        Answers that come later are told to `heard` as well, while their connection lasts. Answers the
        ways on which they went. With those of an earlier question, which some nodes have answered,
        another that is not reached on the same way any more is sent `instead`: what was asked then may
        arrive after it. With `part`, the command may go together with others'.
        """
        self.check()
        asking = Asking(self.board, self._loop, heard)
        question = (asking, by)
        used = self._ways
        for index, usual in enumerate(commands):
            if usual is None:
                continue
            connection = used[index]
            if connection is None:
                self.board.failed(index, "it is not connected")
                heard(index, BackendUnavailable("not connected"))
                continue
            late = ways and connection is not ways[index] and index not in answered
            asking.left += 1
            if late:
                connection.put(instead, question, None)
            else:
                connection.put(usual, question, part)
        if asking.left:
            await asking
        return used

    def same_run(self, ways: Sequence[object], index: int) -> bool:
        """Whether what is sent to a node now reaches the run of its server that those led to."""
        connection = self._ways[index]
        return connection is not None and connection is ways[index]

    def catch_up(self) -> None:
        """Take in the answers that came too late to be waited for: here the loop does so."""

    def post(
        self,
        commands: Sequence[bytes | None],
        by: float,
        ways: Sequence[object] = (),
        instead: Sequence[bytes | None] = (),
        heard: Heard | None = None,
    ) -> list[int]:
        """Send, and do not wait: behind whatever was sent before. Answers who could not be told.

        The rest as in `ask`.
        """
        asking = None if heard is None else Asking(self.board, self._loop, heard)
        untold: list[int] = []
        for index, command in enumerate(commands):
            if command is not None:
                connection = self._links[index].connection
                if connection is None:
                    untold.append(index)
                else:
                    behind = not ways or connection is ways[index]
                    if asking is not None:
                        asking.left += 1
                    connection.send(command if behind else instead[index] or command, by, asking)
        return untold

    async def reach(self, index: int, by: float) -> list[Any]:
        """The answers of one node to the first commands, on a connection that lasts."""
        self.check()
        return await self._links[index].reach(by)

    async def call(self, index: int, command: bytes, by: float, run_id: bytes = b"") -> Any:
        """One node's answer, on the connection on which it was last reached; or raises.

        With a `run_id`, only if it is in that life.
        """
        link = self._links[index]
        connection = link.connection
        if connection is None or (run_id and link.run_id != run_id):
            raise link.broken()
        reply = await connection.send(command, by)
        if isinstance(reply, Exception):
            raise BackendUnavailable(str(reply))
        return reply

    async def batch(self, index: int, commands: Sequence[bytes], by: float) -> list[Any]:
        """One node's answers to many, errors that it answered among them."""
        connection = self._links[index].connection
        if connection is None:
            raise self._links[index].broken()
        return await _all([connection.send(command, by) for command in commands])

    def run_id(self, index: int) -> bytes:
        return self._links[index].run_id

    def changed(self) -> None:
        """Called by a link."""
        self._ways = [link.connection for link in self._links]

    # One timer for all connections: what is asked is mostly asked of all of them.

    def look_at(self, connection: NodeConnection, due: float) -> None:
        """Called by it: what it waits for is due then."""
        self._waiting[connection] = None
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self._loop.call_later(max(0.0, due - self.clock.now()), self._look)

    def _look(self) -> None:
        self._timer, self._timer_due = None, inf
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.look()

    def shut(self) -> None:
        """Nothing is asked any more, and nobody waits for an answer."""
        self.closed = True
        for link in self._links:
            link.shut()

    async def close(self) -> None:
        self.shut()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    def check(self) -> None:
        if self.closed:
            raise BackendUnavailable("this connection to the nodes is closed")


async def _all(replies: list[Reply]) -> list[Any]:
    return [await reply for reply in replies]
