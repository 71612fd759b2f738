"""Requests to all nodes at once, in blocking code: each thread that makes one has a set of sockets.

A command is written to all of them, then whatever comes first is read. Replies that were not waited for
are read when the set is next used: each socket knows to which request its replies belong.
The twin is `aio`: the same names and meanings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from math import ceil
from typing import Any

from .... import forks
from ....clock import Clock
from ....errors import BackendUnavailable
from ....interrupts import let_through
from ...redis.address import Address
from ...redis.wire.protocol import Late
from ..commands import BatchItem
from ..membership import NodeTable
from .threads_calls import NodeCalls
from .threads_connection import FanOut, NodeSocket, OnReply, SocketSet
from .threads_opening import SocketOpener

KEPT_IDLE = 32
"""Sets of sockets kept for the next caller."""
IDLE = 0.5
"""Seconds without use after which a server, or something in between, may have closed a socket."""
STALL = 0.01
"""Seconds that a thread may take to send a request to all nodes."""
POSTING = 1.0
"""Seconds for the connections that are missing where nobody waits for a reply."""
LONGEST_POLL = 1.0
"""Seconds after which a wait looks at the clock."""


class RedlockWire:
    """The connections to all nodes."""

    def __init__(
        self,
        addresses: Sequence[Address],
        table: NodeTable,
        clock: Clock,
        first_commands: list[bytes],
    ) -> None:
        self.table = table
        self.clock = clock
        self.closed = False
        self._made_in = forks.current()
        self._addresses = addresses
        self._idle: deque[SocketSet] = deque()
        """The sets that no thread uses. They are used in turn: only then is it noticed what has come on
        a set's sockets, or that they broke."""
        self._opener = SocketOpener(addresses, table, clock, first_commands, self._is_shut)
        self._calls = NodeCalls(self._opener, clock)

    def fan_out(
        self,
        commands: Sequence[bytes | None],
        on_reply: OnReply,
        deadline: float,
        earlier: Sequence[object] = (),
        replied: Container[int] = (),
        fallback: bytes = b"",
        item: BatchItem | None = None,
    ) -> Sequence[object]:
        """Sends each node its command, all at once; waits until `on_reply` has enough, or all replied.

        Later replies go to `on_reply` as well, when the socket is next used. Returns the sockets that
        were used. A command that follows an earlier one passes the sockets of that as `earlier`, and
        the nodes that have `replied` to it: a node that has not, and whose socket is another by now,
        is sent `fallback`, since the earlier command may arrive after it. `item` is not used: other
        threads' commands go on sockets of their own.
        """
        self.check_open()
        socket_set = self._take()
        try:
            fan_out = FanOut(on_reply)
            sockets, now = socket_set.sockets, self.clock.now
            began = now()
            if began - socket_set.used_at > IDLE:
                self._drop_broken(socket_set, commands)
            socket_set.used_at = began
            if None in sockets:
                self._opener.fill(socket_set, commands, deadline)
                forks.refuse_inherited(self._made_in)  # a child has opened some of its own
                began = now()
            # The node that wakes waiters is the last: whoever it wakes finds the others free.
            for index in range(len(commands) - 1, -1, -1):
                usual = commands[index]
                if usual is None:
                    continue
                node_socket = sockets[index]
                if node_socket is not None and node_socket.is_overdue(began):
                    node_socket = self._catch_up(socket_set, index, began)
                if node_socket is None:
                    on_reply(index, BackendUnavailable("not connected"))
                    continue
                late = earlier and node_socket is not earlier[index] and index not in replied
                try:
                    node_socket.send(fallback if late else usual, fan_out, deadline)
                except OSError as error:
                    let_through(error)
                    self._break(socket_set, index, error)
                    on_reply(index, error)
            used = sockets[:]
            sent = now()
            if sent - began > STALL:
                # This thread stood still while it sent. The nodes have their time all the same.
                deadline += sent - began
                socket_set.extend(fan_out, deadline)
            while fan_out.missing and not fan_out.enough:
                moment = now()
                left = max(0.0, deadline - moment)
                # If it stood still since, the replies are there: it always looks before it gives up.
                ready = socket_set.poll.poll(ceil(min(left, LONGEST_POLL) * 1000))
                if not ready and left == 0.0:
                    self._give_up(socket_set, fan_out, moment - sent)
                    break
                for fd, _ in ready:
                    node_socket = sockets[socket_set.by_fd[fd]]
                    if node_socket is not None:  # otherwise it broke a moment ago
                        try:
                            node_socket.read_replies(self.table)
                        except OSError as error:
                            let_through(error)
                            self._break(socket_set, node_socket.index, error)
        except BaseException:
            # Interrupted, perhaps between a command and the note of its fan-out: a reply would be taken
            # for that to another command.
            socket_set.close()
            raise
        self._give(socket_set)
        return used

    def same_run(self, connections: Sequence[object], index: int) -> bool:
        """Returns True: a socket to another run of the server is never used, see `SocketOpener`."""
        return True

    def drop_hung_up(self) -> None:
        """Does nothing: `fan_out` looks at sockets that were idle, and opens others."""

    def read_late_replies(self) -> None:
        """Reads replies that came too late to be waited for, on all sockets that no thread uses."""
        socket_sets: list[SocketSet] = []
        try:
            while self._idle:
                socket_sets.append(self._take())
            for socket_set in socket_sets:
                for node_socket in socket_set.sockets:
                    if node_socket is not None and node_socket.pending:
                        self._read_replies(socket_set, node_socket)
        except BaseException:
            for socket_set in socket_sets:
                socket_set.close()
            raise
        for socket_set in socket_sets:
            self._give(socket_set)

    def post(
        self,
        commands: Sequence[bytes | None],
        deadline: float,
        on_reply: OnReply,
        earlier: Sequence[object] = (),
        fallbacks: Sequence[bytes | None] = (),
    ) -> list[int]:
        """Sends each node its command, and does not wait, but for connections that are missing.

        Returns the nodes to which that was not possible. `earlier` is as in `fan_out`; a node whose
        socket is another by now is sent its fallback.
        """
        if self._made_in != forks.current():
            return [index for index, command in enumerate(commands) if command is not None]
        fan_out = FanOut(on_reply)
        socket_set = self._take()
        unsent: list[int] = []
        try:
            self._drop_broken(socket_set, commands)  # always: no reply would show it
            self._opener.fill(socket_set, commands, min(deadline, self.clock.now() + POSTING))
            forks.refuse_inherited(self._made_in)
            for index, command in enumerate(commands):
                node_socket = socket_set.sockets[index]
                if command is None:
                    continue
                if node_socket is None:
                    unsent.append(index)
                    continue
                behind = not earlier or node_socket is earlier[index]
                chosen = command if behind else fallbacks[index] or command
                try:
                    node_socket.send(chosen, fan_out, deadline)
                except OSError as error:
                    let_through(error)
                    unsent.append(index)
                    self._break(socket_set, index, error)
        except BaseException:
            socket_set.close()
            raise
        self._give(socket_set)
        return unsent

    def reach(self, index: int, deadline: float) -> list[Any]:
        """Returns one node's replies to the first commands, on a connection that lasts."""
        self.check_open()
        return self._calls.reach(index, deadline)

    def call(self, index: int, command: bytes, deadline: float, run_id: bytes = b"") -> Any:
        """Returns one node's reply, on the connection there is or a new one; or raises.

        With a `run_id`, only if that connection leads to this run of the server.
        """
        (reply,) = self._calls.call(index, [command], deadline, run_id)
        if isinstance(reply, Exception):
            raise BackendUnavailable(str(reply))
        return reply

    def call_many(self, index: int, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Returns one node's replies to many commands, with an error where the node refused one."""
        return self._calls.call(index, commands, deadline, b"")

    def run_id(self, index: int) -> bytes:
        """Returns the run_id of the server on which the node was last reached."""
        return self._calls.run_id(index)

    def shut(self) -> None:
        """Refuses new requests, and fails the calls under way."""
        self.closed = True

    def _is_shut(self) -> bool:
        return self.closed

    def close(self) -> None:
        """Closes all connections."""
        self.closed = True
        idle, self._idle = self._idle, deque()
        for socket_set in idle:
            socket_set.close()
        self._calls.close()

    def check_open(self) -> None:
        """Raises if the wire is shut, or the parent's of this forked process."""
        forks.refuse_inherited(self._made_in)
        if self.closed:
            raise BackendUnavailable("this connection to the nodes is closed")

    # The sets of sockets.

    def _take(self) -> SocketSet:
        """Returns a set for this thread alone: the one that was not used for longest."""
        try:
            return self._idle.popleft()
        except IndexError:
            return SocketSet(len(self._addresses))

    def _give(self, socket_set: SocketSet) -> None:
        """Takes back a set that a thread has used."""
        if self.closed or len(self._idle) >= KEPT_IDLE:
            socket_set.close()
            return
        self._idle.append(socket_set)
        if self.closed:  # meanwhile
            socket_set.close()

    def _catch_up(self, socket_set: SocketSet, index: int, now: float) -> NodeSocket | None:
        """Returns the socket to a node, unless a reply on it is overdue and has not come unread."""
        node_socket = socket_set.sockets[index]
        if node_socket is not None:
            self._read_replies(socket_set, node_socket)
            if node_socket.is_overdue(now):
                self._break(socket_set, index, Late("it did not answer in time"))
        return socket_set.sockets[index]

    def _drop_broken(self, socket_set: SocketSet, commands: Sequence[bytes | None]) -> None:
        """Drops sockets that were closed unnoticed. Where no reply is missing that says nothing of the
        node: a new socket is opened, and nothing is lost."""
        for index, node_socket in enumerate(socket_set.sockets):
            if node_socket is None or commands[index] is None:
                continue
            try:
                if node_socket.pending:
                    node_socket.read_replies(self.table)  # the end comes behind the replies
                node_socket.read_replies(self.table)
            except OSError as error:
                let_through(error)
                if node_socket.pending:
                    self._break(socket_set, index, error)
                else:
                    socket_set.drop(index)

    def _read_replies(self, socket_set: SocketSet, node_socket: NodeSocket) -> None:
        try:
            node_socket.read_replies(self.table)
        except OSError as error:
            let_through(error)
            self._break(socket_set, node_socket.index, error)

    def _give_up(self, socket_set: SocketSet, fan_out: FanOut, allowed: float) -> None:
        """Tells the fan-out which nodes have not replied in time. Their sockets stay for a while."""
        for index, node_socket in enumerate(socket_set.sockets):
            if node_socket is not None and any(one is fan_out for one, _ in node_socket.pending):
                if self.table.is_enough_time(allowed):
                    reason = f"{self._addresses[index]} did not answer in time"
                    self.table.report_failure(index, reason)
                fan_out.on_reply(index, Late("it did not answer in time"))

    def _break(self, socket_set: SocketSet, index: int, error: Exception) -> None:
        """Drops a socket on which no reply will come, and tells all fan-outs that wait for one."""
        node_socket = socket_set.sockets[index]
        socket_set.drop(index)
        self.table.report_failure(index, f"its connection broke: {error}")
        if node_socket is not None:
            while node_socket.pending:
                fan_out, _ = node_socket.pending.popleft()
                fan_out.receive(index, error)
