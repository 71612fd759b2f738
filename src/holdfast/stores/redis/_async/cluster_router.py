"""All servers of a cluster, behind the face of one: each command goes to where its lock lives.

Who serves a slot is learned from the servers, and learned again when one redirects us, breaks its
connection or cannot be reached. A waiter listens on the server that serves its lock, because its
wake-up is published there; when the slot has moved, it enrols there again, and keeps its place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable, ConfigError, LockError
from ....model import Granted
from ..._async.contract import Ticket
from ..address import Address
from ..cluster import SLOTS, Place, read_redirect, read_slots, slot_of_command
from ..wire.aio import Wire
from ..wire.protocol import Lost, code_of, pack, refusal

EACH = 0.5
"""Seconds for one server to say who serves what, so that one that stands still does not hold up all."""
REDIRECTS = 5
"""How often one command is redirected before it has to wait a moment."""
PAUSE = 0.02
ENROL_LIMIT = 5.0
_MAP = pack(b"CLUSTER", b"SLOTS")
_ASKING = pack(b"ASKING")


class Node:
    """One server."""

    def __init__(self, place: Place, wire: Wire) -> None:
        self.place = place
        self.wire = wire
        self.suspect = False
        """Its last answer failed to come: others are asked before it."""


class Enrolled(NamedTuple):
    """A ticket in a queue, and how it was asked for."""

    ticket: Ticket
    slot: int
    node: Node
    command: bytes
    owner: bytes


class Nodes:
    def __init__(
        self, seeds: Sequence[Address], clock: Clock, channels: bytes, loads: Sequence[bytes]
    ) -> None:
        self._seeds = [Place(seed.host, seed.port) for seed in seeds]
        self._access = seeds[0]
        self._clock = clock
        self._channels = channels
        self._loads = loads
        self._nodes: dict[Place, Node] = {}
        self._slots: list[Place | None] = [None] * SLOTS
        self._stale = True
        self._named: Place | None = None
        """Where we were redirected to: it knows best who serves what."""
        self.waiting: dict[str, Enrolled] = {}
        self._closed = False

    @property
    def address(self) -> Address:
        return self._access

    async def open(self, deadline: float) -> None:
        await self._learn(deadline)
        for place in self.places():
            node = self._node(place)
            with suppress(BackendUnavailable):  # whoever needs it will say so
                await self._load(node, min(deadline, self._clock.now() + EACH))

    def places(self) -> list[Place]:
        """Of all who serve slots."""
        return sorted({place for place in self._slots if place is not None})

    async def close(self) -> None:
        self._closed = True
        self.waiting.clear()
        nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            await node.wire.close()

    def turn_away(self) -> None:
        self._stale = True

    # The verbs of a wire.

    async def call(self, command: bytes, deadline: float) -> Any:
        return await self._sent(
            slot_of_command(command), lambda n: n.wire.call(command, deadline), deadline
        )

    async def release(self, command: bytes, deadline: float) -> Any:
        """For a command that may wake others."""
        return await self._sent(
            slot_of_command(command), lambda n: n.wire.release(command, deadline), deadline
        )

    async def call_at(self, place: Place, command: bytes, deadline: float) -> Any:
        """One that belongs to no slot."""
        reply = await self._node(place).wire.call(command, deadline)
        if isinstance(reply, Exception):
            raise refusal(reply, self._access._replace(host=place.host, port=place.port))
        return reply

    async def paired(self, command: bytes, then: bytes, deadline: float) -> Sequence[Any]:
        """Two to one server, on one connection; the second belongs to no slot."""
        answer: Any = None

        async def send(node: Node) -> Any:
            nonlocal answer
            reply, answer = await node.wire.batch([command, then], deadline)
            return reply

        return await self._sent(slot_of_command(command), send, deadline), answer

    async def batch(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        replies = await self.each(commands, deadline)
        for reply in replies:
            if isinstance(reply, LockError):
                raise reply
        return replies

    async def each(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """An answer for each, or the reason why there is none; one round trip for each server."""
        if self._closed:
            raise BackendUnavailable("this connection to the cluster is closed")
        replies: list[Any] = [None] * len(commands)
        shares: dict[Place | None, list[int]] = {}
        try:
            if self._stale:
                await self._learn(deadline)
        except LockError as error:
            return [error] * len(commands)
        for i, command in enumerate(commands):
            shares.setdefault(self._slots[slot_of_command(command)], []).append(i)
        left = len(shares)
        for place in sorted(shares, key=self._is_suspect):
            # Those that stand still come last, and none uses up the time of the others.
            now = self._clock.now()
            limit = now + (deadline - now) / left
            left -= 1
            numbers = shares[place]
            try:
                if place is None:
                    raise BackendUnavailable("no server of the cluster serves this lock now")
                some = [commands[i] for i in numbers]
                answers = await self._batch(self._node(place), some, limit)
            except LockError as error:
                answers = [error] * len(numbers)
            for i, answer in zip(numbers, answers, strict=True):
                replies[i] = answer
        for i, reply in enumerate(replies):
            if isinstance(reply, Exception) and code_of(reply) in ("MOVED", "NOSCRIPT", "ASK"):
                try:
                    replies[i] = await self._followed(commands[i], reply, deadline)
                except LockError as error:
                    replies[i] = error
        return replies

    async def ask(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        slot = slot_of_command(command)
        before = self.waiting.get(ticket.owner)
        node = before.node if before is not None else None

        async def send(to: Node) -> Any:
            nonlocal node
            if node is not None and node is not to:
                node.wire.forget(ticket.owner)  # redirected, or moved: it is told by one only
            node = to
            reply = await to.wire.ask(ticket, command, owner, deadline)
            if type(reply) is int and reply < 0 and ticket.queue:
                reply = await to.wire.enqueue(ticket, command, owner, deadline)
            return reply

        try:
            reply = await self._sent(slot, send, deadline)
        except BaseException:
            if node is not None:
                node.wire.forget(ticket.owner)
            raise
        assert node is not None
        if ticket.queue and type(reply) is int and reply >= 0:
            self.waiting[ticket.owner] = Enrolled(ticket, slot, node, command, owner)
        else:
            node.wire.forget(ticket.owner)
        return reply

    async def enqueue(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        return await self.ask(ticket, command, owner, deadline)

    async def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        entry = self.waiting.get(ticket.owner)
        if entry is None:
            return await ticket.wait(self._clock, until)
        grant = await entry.node.wire.listen(ticket, until)
        if grant is not None:
            self.waiting.pop(ticket.owner, None)
        return grant

    def moved(self, ticket: Ticket) -> Enrolled | None:
        """How it was asked for, if its lock has moved to another server since."""
        entry = self.waiting.get(ticket.owner)
        if entry is None or self._slots[entry.slot] in (None, entry.node.place):
            return None
        return entry

    def forget(self, owner: str) -> None:
        entry = self.waiting.pop(owner, None)
        if entry is not None:
            entry.node.wire.forget(owner)

    # Who serves what.

    def _node(self, place: Place) -> Node:
        if self._closed:
            raise BackendUnavailable("this connection to the cluster is closed")
        node = self._nodes.get(place)
        if node is None:
            address = self._access._replace(host=place.host, port=place.port)
            node = Node(place, Wire(address, self._clock, self._channels))
            node = self._nodes.setdefault(place, node)
        return node

    def _is_suspect(self, place: Place | None) -> bool:
        node = self._nodes.get(place) if place is not None else None
        return node is None or node.suspect

    async def _learn(self, deadline: float) -> None:
        """Ask until one answers. It may be behind the others: then we are redirected, and ask again."""
        known = [node.place for node in self._nodes.values()]
        candidates = sorted(dict.fromkeys([*known, *self._seeds]), key=self._is_suspect)
        if self._named is not None:
            candidates.insert(0, self._named)
            self._named = None
        reason: LockError = BackendUnavailable("no time was left to ask the cluster")
        for patient in (False, True):  # at last with all the time there is: they may only be slow
            for index, place in enumerate(candidates):
                left = deadline - self._clock.now()
                if left <= 0 or (patient and isinstance(reason, ConfigError)):
                    raise reason
                share = left / (len(candidates) - index) if patient else min(left, EACH)
                failed = await self._learn_from(place, self._clock.now() + share)
                if failed is None:
                    return
                reason = failed
        raise reason

    async def _learn_from(self, place: Place, deadline: float) -> LockError | None:
        """Why this one could not tell, or None if it did."""
        node = self._node(place)
        try:
            (reply,) = await self._batch(node, [_MAP], deadline)
        except (BackendUnavailable, ConfigError) as error:
            return error
        if isinstance(reply, Exception):
            return refusal(reply, node.wire.address)
        slots = read_slots(reply, node.wire.address)
        if not any(slots):
            return BackendUnavailable(f"the server at {node.wire.address} serves no slots yet")
        self._stale = False
        self._set(slots)
        return None

    def _set(self, slots: list[Place | None]) -> None:
        self._slots = slots
        for entry in list(self.waiting.values()):
            if slots[entry.slot] not in (None, entry.node.place):
                entry.ticket.tell()  # it asks, and then enrols where its lock lives now

    async def _tried(self, node: Node, send: Callable[[Node], Awaitable[Any]]) -> Any:
        try:
            reply = await send(node)
        except LockError:
            node.suspect = self._stale = True
            raise
        node.suspect = False
        return reply

    async def _batch(self, node: Node, commands: Sequence[bytes], deadline: float) -> list[Any]:
        replies: list[Any] = await self._tried(node, lambda n: n.wire.batch(commands, deadline))
        return replies

    # Following.

    async def _sent(
        self, slot: int, send: Callable[[Node], Awaitable[Any]], deadline: float
    ) -> Any:
        """Send it to whoever serves the slot, and follow; what has no answer is left to the caller."""
        left = REDIRECTS
        while True:
            try:
                if self._stale:
                    await self._learn(deadline)
                place = self._slots[slot]
                if place is None:
                    self._stale = True
                    raise BackendUnavailable(f"no server of the cluster serves slot {slot} now")
                node = self._node(place)
                reply = await self._tried(node, send)
            except Lost:
                raise
            except BackendUnavailable:
                # Nothing was sent: a server that is gone will be replaced.
                if self._closed or self._clock.now() + PAUSE >= deadline:
                    raise
                await Signal(self._clock).wait(self._clock.now() + PAUSE)
                continue
            code = code_of(reply) if isinstance(reply, Exception) else ""
            if code == "MOVED" and left:
                self._follow(reply, node)
            elif code == "NOSCRIPT" and left:
                await self._load(node, deadline)
            else:
                if code == "CLUSTERDOWN":
                    self._stale = True
                return reply
            left -= 1

    def _follow(self, reply: Exception, node: Node) -> None:
        slot, place = read_redirect(reply, node.wire.address)
        slots = self._slots.copy()
        slots[slot] = place
        self._set(slots)
        self._named, self._stale = place, True  # where one slot has moved, others may have

    async def _followed(self, command: bytes, reply: Exception, deadline: float) -> Any:
        """One command of a batch that was redirected. `ASK` is for a key that has moved already."""
        slot = slot_of_command(command)
        if code_of(reply) != "ASK":
            return await self._sent(slot, lambda node: node.wire.call(command, deadline), deadline)
        place = self._slots[slot]
        assert place is not None
        _, target = read_redirect(reply, self._node(place).wire.address)
        node = self._node(target)
        _, answer = await self._batch(node, [_ASKING, command], deadline)
        if isinstance(answer, Exception) and code_of(answer) == "NOSCRIPT":
            await self._load(node, deadline)
            _, answer = await self._batch(node, [_ASKING, command], deadline)
        return answer

    async def _load(self, node: Node, deadline: float) -> None:
        for reply in await self._batch(node, self._loads, deadline):
            if isinstance(reply, Exception) and code_of(reply) != "LOADING":
                raise refusal(reply, node.wire.address)
