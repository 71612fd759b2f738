"""Asking all nodes at once, in blocking code: a lane of connections for each thread that is asking.

A command is written to all of them, then whatever comes first is read. What was not waited for is read
when the lane is next used: each connection knows who asked.
The twin is `aio`: the same names and meanings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from threading import Lock, Thread
from typing import Any

from ....clock import Clock
from ....errors import BackendUnavailable, ConfigError
from ...redis.address import Address
from ...redis.wire.protocol import Late, Lost, check_greeting, greeting
from ..commands import Part
from ..membership import Board, read_marker, run_id_of
from .threads_sockets import FULL, Asking, Heard, Lane, Line

KEPT_IDLE = 32
"""Lanes kept for the next caller."""
SELDOM = 16
"""Once in so many times it is the lane that nobody has used for longest: what has come on it, or that
it broke, is not noticed before."""
IDLE = 0.5
"""Seconds after which it may have been hung up on for that, by a server or by something between."""
LONGEST_POLL = 1.0
FOR_CONNECTING = 0.75
"""Of the time for a request, where a connection is missing: that takes two or more round trips."""
LINGER = 0.05


class Fan:
    def __init__(
        self, addresses: Sequence[Address], board: Board, clock: Clock, first: list[bytes]
    ) -> None:
        self.board = board
        self.clock = clock
        self.first = first
        self.closed = False
        self._addresses = addresses
        self._idle: deque[Lane] = deque()
        """Those that were used last are at the end."""
        self._taken = 0
        # For `reach`, `batch` and `call`: those who look after the nodes, one thread for each.
        self._own: list[Line | None] = [None] * len(addresses)
        self._own_mutexes = [Lock() for _ in addresses]

    def ask(
        self,
        commands: Sequence[bytes | None],
        heard: Heard,
        deadline: float,
        ways: Sequence[object] = (),
        answered: Container[int] = (),
        instead: bytes = b"",
        part: Part | None = None,
    ) -> Sequence[object]:
        """Each node its command, all at once; until `heard` has enough, or all have answered.

        Answers that come later are told to `heard` as well, when the connection is next used. Answers
        the ways on which they went. With those of an earlier question, which some nodes have answered,
        another that is not reached on the same way any more is sent `instead`: what was asked then may
        arrive after it. `part` is of no use here: what others ask goes on connections of their own.
        """
        if self.closed:
            self.check()
        lane = self._take()
        try:
            asking = Asking(heard)
            question = (asking, deadline)
            lines, now = lane.lines, self.clock.now
            moment = now()
            if moment - lane.used > IDLE:
                self._look_over(lane, commands)
            lane.used = moment
            if None in lines:
                self._connect_missing(lane, commands, deadline)
                moment = now()
            for index, usual in enumerate(commands):
                if usual is None:
                    continue
                line = lines[index]
                if line is None or (line.asked and line.asked[0][1] < moment):
                    line = self._usable(lane, index, moment)
                    if line is None:
                        heard(index, BackendUnavailable("not connected"))
                        continue
                late = ways and line is not ways[index] and index not in answered
                command = instead if late else usual
                try:
                    if line.write(command) == len(command):  # `send`, in short
                        line.asked.append(question)
                        asking.left += 1
                        continue
                    error: OSError = ConnectionResetError(FULL)
                except OSError as raised:
                    error = raised
                self._broke(lane, index, error)
                heard(index, error)
            used = lines[:]
            poll, by_fd, board = lane.poll.poll, lane.by_fd, self.board
            while asking.left and not asking.enough:
                wait = deadline - now()
                if wait <= 0:
                    self._give_up_on(lane, asking, deadline - moment)
                    break
                for fd, _ in poll((wait if wait < LONGEST_POLL else LONGEST_POLL) * 1000 + 1):
                    line = lines[by_fd[fd]]
                    if line is not None:  # otherwise it broke a moment ago
                        try:
                            line.take_in(board)
                        except OSError as error:
                            self._broke(lane, line.index, error)
        except BaseException:
            # Interrupted, perhaps between a command and the note of who asked: an answer would be
            # taken for another's.
            lane.close()
            raise
        self._give(lane)
        return used

    def same_run(self, ways: Sequence[object], index: int) -> bool:
        """Always, or it is not sent: see `_line`."""
        return True

    def catch_up(self) -> None:
        """Take in answers that came too late to be waited for, on all connections that nobody uses."""
        lanes: list[Lane] = []
        try:
            while self._idle:
                lanes.append(self._take())
            for lane in lanes:
                for index, line in enumerate(lane.lines):
                    if line is not None and line.asked:
                        self._take_in(lane, index, line)
        except BaseException:
            for lane in lanes:
                lane.close()
            raise
        for lane in reversed(lanes):
            self._give(lane)

    def post(
        self,
        commands: Sequence[bytes | None],
        deadline: float,
        heard: Heard,
        ways: Sequence[object] = (),
        instead: Sequence[bytes | None] = (),
    ) -> list[int]:
        """Send, and do not wait. Answers who could not be told. The rest as in `ask`."""
        asking = Asking(heard)
        lane = self._take()
        untold: list[int] = []
        try:
            self._look_over(lane, commands)  # always: nobody waits for an answer
            self._connect_missing(lane, commands, deadline)
            for index, command in enumerate(commands):
                line = lane.lines[index]
                if command is None:
                    continue
                if line is None:
                    untold.append(index)
                    continue
                behind = not ways or line is ways[index]
                try:
                    line.send(command if behind else instead[index] or command, asking, deadline)
                except OSError as error:
                    untold.append(index)
                    self._broke(lane, index, error)
        except BaseException:
            lane.close()
            raise
        self._give(lane)
        return untold

    def reach(self, index: int, deadline: float) -> list[Any]:
        """The answers of one node to the first questions, on a connection that lasts."""
        self.check()
        with self._own_mutexes[index]:
            line = self._own[index]
            if line is not None:
                try:
                    return line.ask(self.first, self.clock, deadline, self._is_shut)
                except Lost:
                    self._own[index] = None
                    line.close()
                    if self.clock.now() >= deadline:
                        raise  # why, and not that no time is left for another
            line, answers = self._connect(index, deadline)
            self._own[index] = line
            return answers

    def batch(self, index: int, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """One node's answers to many, errors that it answered among them."""
        with self._own_mutexes[index]:
            return self._ask_own(index, commands, deadline, b"")

    def call(self, index: int, command: bytes, deadline: float, run_id: bytes = b"") -> Any:
        """One node's answer, on the connection on which it was last reached; or raises.

        With a `run_id`, only if it is in that life.
        """
        with self._own_mutexes[index]:
            (reply,) = self._ask_own(index, [command], deadline, run_id)
        if isinstance(reply, Exception):
            raise BackendUnavailable(str(reply))
        return reply

    def run_id(self, index: int) -> bytes:
        line = self._own[index]
        return b"" if line is None else line.run_id

    def shut(self) -> None:
        """Nothing is asked any more, and nobody waits for an answer."""
        self.closed = True

    def _is_shut(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        idle, self._idle = self._idle, deque()
        for lane in idle:
            lane.close()
        for index, mutex in enumerate(self._own_mutexes):
            with mutex:
                line, self._own[index] = self._own[index], None
                if line is not None:
                    line.close()

    def check(self) -> None:
        if self.closed:
            raise BackendUnavailable("this connection to the nodes is closed")

    # Their parts.

    def _take(self) -> Lane:
        self._taken += 1  # or not, if two threads do so at the same time
        try:
            return self._idle.popleft() if self._taken % SELDOM == 0 else self._idle.pop()
        except IndexError:
            return Lane(len(self._addresses))

    def _give(self, lane: Lane) -> None:
        if self.closed or len(self._idle) >= KEPT_IDLE:
            lane.close()
            return
        self._idle.append(lane)
        if self.closed:  # meanwhile
            lane.close()

    def _usable(self, lane: Lane, index: int, now: float) -> Line | None:
        """A connection that is missing, or on which an answer is overdue, put right if it can be."""
        line = lane.lines[index]
        if line is not None:
            # An earlier answer may have come meanwhile, unread.
            self._take_in(lane, index, line)
            line = lane.lines[index]
            if line is not None and line.asked and line.asked[0][1] < now:
                self._broke(lane, index, Late("it did not answer in time"))
        return lane.lines[index]

    def _look_over(self, lane: Lane, commands: Sequence[bytes | None]) -> None:
        """Its connections may have been closed long ago, unnoticed. Where nobody waits for an answer
        that says nothing of the node: another connection is made, and nobody loses anything by it."""
        for index, line in enumerate(lane.lines):
            if line is None or commands[index] is None:
                continue
            try:
                if line.asked:
                    line.take_in(self.board)  # that it was closed stands behind the answers
                line.take_in(self.board)
            except OSError as error:
                if line.asked:
                    self._broke(lane, index, error)
                else:
                    lane.drop(index)

    def _connect_missing(
        self, lane: Lane, commands: Sequence[bytes | None], deadline: float
    ) -> None:
        """The lane's connections to nodes that vote, all at once: one that hangs keeps up no other."""
        lines, seats = lane.lines, self.board.seats
        missing = [
            index
            for index, command in enumerate(commands)
            if command is not None and lines[index] is None and seats[index].vote
        ]
        if not missing:
            return
        now = self.clock.now()
        deadline = now + (deadline - now) * FOR_CONNECTING
        made: list[Line | None] = [None] * len(lines)
        over = False
        mutex = Lock()

        def make(index: int) -> None:
            line = self._line(index, deadline)
            with mutex:
                if not over:
                    made[index] = line
                    return
            if line is not None:
                line.close()

        threads = [Thread(target=make, args=(index,), daemon=True) for index in missing[1:]]
        try:
            for thread in threads:
                thread.start()
            make(missing[0])
            for thread in threads:
                # To find its name may take longer.
                thread.join(max(0.0, deadline - self.clock.now()) + LINGER)
        finally:
            with mutex:
                over = True
            for index, line in enumerate(made):
                if line is not None:
                    lane.put(index, line)

    def _line(self, index: int, deadline: float) -> Line | None:
        """A connection to a node that votes. It may only be used for the life in which it does."""
        vote = self.board.seats[index].vote
        try:
            line, answers = self._connect(index, deadline)
        except (BackendUnavailable, ConfigError) as error:
            self.board.failed(index, str(error))
            return None
        try:
            marker = read_marker(answers[1]) if isinstance(answers[1], bytes) else None
        except ValueError:
            marker = None  # somebody wrote over it
        if marker is None or marker.incarnation not in vote or not self._same_life(line, marker):
            line.close()
            self.board.failed(index, "it has restarted")
            return None
        return line

    def _same_life(self, line: Line, marker: Any) -> bool:
        return self.board.durable or bool(marker.incarnation.startswith(line.run_id))

    def _connect(self, index: int, deadline: float) -> tuple[Line, list[Any]]:
        address = self._addresses[index]
        line = Line(address, deadline - self.clock.now(), index)
        try:
            hello = greeting(address)
            replies = line.ask([*hello, *self.first], self.clock, deadline, self._is_shut)
            check_greeting(replies[: len(hello)], address)
        except BaseException:
            line.close()
            raise
        answers = replies[len(hello) :]
        line.run_id = run_id_of(answers[0])
        return line, answers

    def _take_in(self, lane: Lane, index: int, line: Line) -> None:
        try:
            line.take_in(self.board)
        except OSError as error:
            self._broke(lane, index, error)

    def _give_up_on(self, lane: Lane, asking: Asking, allowed: float) -> None:
        """Those that have not answered this in time; their connections are kept for a while."""
        for index, line in enumerate(lane.lines):
            if line is not None and any(who is asking for who, _ in line.asked):
                if self.board.had_time(allowed):
                    self.board.failed(index, f"{self._addresses[index]} did not answer in time")
                asking.heard(index, Late("it did not answer in time"))

    def _broke(self, lane: Lane, index: int, error: Exception) -> None:
        """No answer will come on it any more: all who wait for one are told so."""
        line = lane.lines[index]
        lane.drop(index)
        self.board.failed(index, f"its connection broke: {error}")
        if line is not None:
            while line.asked:
                line.asked.popleft()[0].answered(index, error)

    def _ask_own(
        self, index: int, commands: Sequence[bytes], deadline: float, run_id: bytes
    ) -> list[Any]:
        line = self._own[index]
        if line is None or (run_id and line.run_id != run_id):
            raise Lost(f"the connection to {self._addresses[index]} broke")
        try:
            return line.ask(commands, self.clock, deadline, self._is_shut)
        except BaseException:
            self._own[index] = None
            line.close()
            raise
