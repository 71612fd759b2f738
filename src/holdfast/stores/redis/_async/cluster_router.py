"""A wire to all servers of a cluster: each command goes to the server that has its lock.

The servers say who serves which slot. They are asked again when one redirects us, breaks its
connection or cannot be reached. A waiter listens on the server that serves its lock, because its
wake-up is published there; when the slot has moved, it enrols there again, and keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ....clock import Clock
from ....errors import BackendUnavailable, LockError
from ....model import Granted
from ..._async.contract import Ticket
from ..address import Address
from ..cluster import Endpoint, slot_of_command
from ..wire.refusals import code_of, refusal
from .cluster_slots import EACH_SERVER_LIMIT, ClusterNode, ClusterSlots

ENROL_LIMIT = 5.0


class Enrolment(NamedTuple):
    """A ticket in the queue of a server, and the command that put it there."""

    ticket: Ticket
    slot: int
    node: ClusterNode
    command: bytes
    owner: bytes


class ClusterRouter(ClusterSlots):
    """The wire to a cluster."""

    def __init__(
        self, seeds: Sequence[Address], clock: Clock, channels: bytes, loads: Sequence[bytes]
    ) -> None:
        super().__init__(seeds, clock, channels, loads)
        self.waiting: dict[str, Enrolment] = {}
        self._observed: WeakKeyDictionary[Ticket, ClusterNode] = WeakKeyDictionary()
        """The servers on which observers of elections are known."""
        self._ear: ClusterNode | None = None
        """The server that is listened to for forced releases."""

    @property
    def address(self) -> Address:
        return self._any_address

    @property
    def attentive(self) -> bool:
        """Whether forced releases are heard of."""
        return self._ear is not None and self._ear.wire.attentive

    def attend(self, owner: str) -> None:
        """Begins to listen for forced releases; one of `owner`, who was just granted a lock, too.

        One server will do, whichever it is: what one publishes is heard of at all of them.
        """
        if self._ear is None or self._ear.suspect:
            for node in self._nodes.copy().values():
                if not node.suspect:
                    self._ear = node
                    break
        if self._ear is not None:
            self._ear.wire.attend(owner)

    def heed(self, channel: bytes, recalled: Callable[[str], object]) -> None:
        """Has `recalled` called with each owner that `channel` names. Called before `open`."""
        self._recalls, self._recalled = channel, recalled

    async def open(self, deadline: float) -> None:
        await self._refresh_slots(deadline)
        for endpoint in self.endpoints():
            node = self._node(endpoint)
            with suppress(BackendUnavailable):  # a command that needs it will report that
                await self._load_scripts(node, min(deadline, self._clock.now() + EACH_SERVER_LIMIT))

    async def close(self) -> None:
        self._closed = True
        self.waiting.clear()
        nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            await node.wire.close()

    def drop_connections(self) -> None:
        self._stale = True

    # The verbs of a wire.

    async def call(self, command: bytes, deadline: float) -> Any:
        return await self._route(
            slot_of_command(command), lambda n: n.wire.call(command, deadline), deadline
        )

    async def release(self, command: bytes, deadline: float) -> Any:
        """Sends a command that may wake waiters."""
        return await self._route(
            slot_of_command(command), lambda n: n.wire.release(command, deadline), deadline
        )

    async def call_at(self, endpoint: Endpoint, command: bytes, deadline: float) -> Any:
        """Sends a command that belongs to no slot to the server at `endpoint`."""
        reply = await self._node(endpoint).wire.call(command, deadline)
        if isinstance(reply, Exception):
            raise refusal(reply, self._any_address._replace(host=endpoint.host, port=endpoint.port))
        return reply

    async def call_pair(self, command: bytes, then: bytes, deadline: float) -> Sequence[Any]:
        """Sends two commands to one server, on one connection; `then` belongs to no slot."""
        second: Any = None

        async def send(node: ClusterNode) -> Any:
            nonlocal second
            reply, second = await node.wire.batch([command, then], deadline)
            return reply

        return await self._route(slot_of_command(command), send, deadline), second

    async def batch(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        replies = await self.call_each(commands, deadline)
        for reply in replies:
            if isinstance(reply, LockError):
                raise reply
        return replies

    async def call_each(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Returns a reply or the error for each command, in one round trip for each server."""
        if self._closed:
            raise BackendUnavailable("this connection to the cluster is closed")
        replies: list[Any] = [None] * len(commands)
        by_endpoint: dict[Endpoint | None, list[int]] = {}
        try:
            if self._stale:
                await self._refresh_slots(deadline)
        except LockError as error:
            return [error] * len(commands)
        for i, command in enumerate(commands):
            by_endpoint.setdefault(self._slots[slot_of_command(command)], []).append(i)
        left = len(by_endpoint)
        for endpoint in sorted(by_endpoint, key=self._is_suspect):
            # Servers that hang come last, and none uses up the time of the others.
            now = self._clock.now()
            limit = now + (deadline - now) / left
            left -= 1
            numbers = by_endpoint[endpoint]
            try:
                if endpoint is None:
                    raise BackendUnavailable("no server of the cluster serves this lock now")
                some = [commands[i] for i in numbers]
                some_replies = await self._batch(self._node(endpoint), some, limit)
            except LockError as error:
                some_replies = [error] * len(numbers)
            for i, reply in zip(numbers, some_replies, strict=True):
                replies[i] = reply
        for i, reply in enumerate(replies):
            if isinstance(reply, Exception) and code_of(reply) in ("MOVED", "NOSCRIPT", "ASK"):
                try:
                    replies[i] = await self._follow_redirect(commands[i], reply, deadline)
                except LockError as error:
                    replies[i] = error
        return replies

    async def acquire(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        slot = slot_of_command(command)
        before = self.waiting.get(ticket.owner)
        node = before.node if before is not None else None

        async def send(to: ClusterNode) -> Any:
            nonlocal node
            if node is not None and node is not to:
                node.wire.forget(ticket.owner)  # its lock moved: one server only may wake it
            node = to
            reply = await to.wire.acquire(ticket, command, owner, deadline)
            if type(reply) is int and reply < 0 and ticket.queue:
                reply = await to.wire.enqueue(ticket, command, owner, deadline)
            return reply

        try:
            reply = await self._route(slot, send, deadline)
        except BaseException:
            if node is not None:
                node.wire.forget(ticket.owner)
            raise
        assert node is not None
        if ticket.queue and type(reply) is int and reply >= 0:
            self.waiting[ticket.owner] = Enrolment(ticket, slot, node, command, owner)
        else:
            node.wire.forget(ticket.owner)
        return reply

    async def enqueue(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        return await self.acquire(ticket, command, owner, deadline)

    async def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        entry = self.waiting.get(ticket.owner)
        if entry is None:
            return await ticket.wait(self._clock, until)
        grant = await entry.node.wire.listen(ticket, until)
        if grant is not None:
            self.waiting.pop(ticket.owner, None)
        return grant

    async def observe(self, ticket: Ticket, command: bytes, deadline: float) -> Any:
        async def send(node: ClusterNode) -> Any:
            before = self._observed.get(ticket)
            if before is not None and before is not node:
                before.wire.observers.pop(ticket.owner, None)
            self._observed[ticket] = node
            return await node.wire.observe(ticket, command, deadline)

        return await self._route(slot_of_command(command), send, deadline)

    async def unobserve(self, ticket: Ticket, command: bytes, deadline: float) -> Any:
        node = self._observed.pop(ticket, None)
        if node is None:
            return 0

        async def send(_: ClusterNode) -> Any:
            return await node.wire.unobserve(ticket, command, deadline)

        return await self._route(slot_of_command(command), send, deadline)

    def moved_enrolment(self, ticket: Ticket) -> Enrolment | None:
        """Returns the enrolment of `ticket`, if its lock has moved to another server since."""
        entry = self.waiting.get(ticket.owner)
        if entry is None or self._slots[entry.slot] in (None, entry.node.endpoint):
            return None
        return entry

    def forget(self, owner: str) -> None:
        entry = self.waiting.pop(owner, None)
        if entry is not None:
            entry.node.wire.forget(owner)

    def _set_slots(self, slots: list[Endpoint | None]) -> None:
        super()._set_slots(slots)
        for entry in list(self.waiting.values()):
            if slots[entry.slot] not in (None, entry.node.endpoint):
                entry.ticket.tell()  # its waiter then enrols on the server that has its lock now
