"""Slots of a Redis cluster and the servers that serve them: asked for, and corrected by redirects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable, ConfigError, LockError
from ..address import Address
from ..cluster import SLOTS, Endpoint, read_redirect, read_slots, slot_of_command
from ..wire.aio import Wire
from ..wire.protocol import Lost, pack
from ..wire.refusals import code_of, refusal

EACH_SERVER_LIMIT = 0.5
"""Seconds for one server to say who serves which slot: one that hangs must not hold up all."""
REDIRECTS = 5
"""Redirects that one command follows before its caller has to wait a moment."""
PAUSE = 0.02
_CLUSTER_SLOTS = pack(b"CLUSTER", b"SLOTS")
_ASKING = pack(b"ASKING")


class ClusterNode:
    """One server of the cluster."""

    def __init__(self, endpoint: Endpoint, wire: Wire) -> None:
        self.endpoint = endpoint
        self.wire = wire
        self.suspect = False
        """Its last reply did not come: the other servers are asked before it."""


class ClusterSlots:
    """The servers of a cluster, and which of them serves which slot."""

    def __init__(
        self, seeds: Sequence[Address], clock: Clock, channels: bytes, loads: Sequence[bytes]
    ) -> None:
        self._seeds = [Endpoint(seed.host, seed.port) for seed in seeds]
        self._any_address = seeds[0]
        self._clock = clock
        self._channels = channels
        self._loads = loads
        self._nodes: dict[Endpoint, ClusterNode] = {}
        self._slots: list[Endpoint | None] = [None] * SLOTS
        self._stale = True
        self._redirected_to: Endpoint | None = None
        """The server that we were redirected to last: it knows best who serves which slot."""
        self._recalls = b""
        self._recalled: Callable[[str], object] = lambda owner: None
        self._closed = False

    def endpoints(self) -> list[Endpoint]:
        """Returns the endpoints of all servers that serve slots."""
        return sorted({endpoint for endpoint in self._slots if endpoint is not None})

    def _node(self, endpoint: Endpoint) -> ClusterNode:
        if self._closed:
            raise BackendUnavailable("this connection to the cluster is closed")
        node = self._nodes.get(endpoint)
        if node is None:
            address = self._any_address._replace(host=endpoint.host, port=endpoint.port)
            node = ClusterNode(endpoint, Wire(address, self._clock, self._channels))
            if self._recalls:
                node.wire.heed(self._recalls, self._recalled)
            node = self._nodes.setdefault(endpoint, node)
        return node

    def _is_suspect(self, endpoint: Endpoint | None) -> bool:
        node = self._nodes.get(endpoint) if endpoint is not None else None
        return node is None or node.suspect

    async def _refresh_slots(self, deadline: float) -> None:
        """Asks the servers in turn who serves which slot, until one replies.

        That server may be behind the others. Then a command is redirected, and we ask again.
        """
        known = [node.endpoint for node in self._nodes.values()]
        candidates = sorted(dict.fromkeys([*known, *self._seeds]), key=self._is_suspect)
        if self._redirected_to is not None:
            candidates.insert(0, self._redirected_to)
            self._redirected_to = None
        reason: LockError = BackendUnavailable("no time was left to ask the cluster")
        for patient in (False, True):  # the second time with all the time left: they may be slow
            for index, endpoint in enumerate(candidates):
                left = deadline - self._clock.now()
                if left <= 0 or (patient and isinstance(reason, ConfigError)):
                    raise reason
                share = (
                    left / (len(candidates) - index) if patient else min(left, EACH_SERVER_LIMIT)
                )
                failed = await self._refresh_slots_from(endpoint, self._clock.now() + share)
                if failed is None:
                    return
                reason = failed
        raise reason

    async def _refresh_slots_from(self, endpoint: Endpoint, deadline: float) -> LockError | None:
        """Asks one server; returns the error if it could not tell, else None."""
        node = self._node(endpoint)
        try:
            (reply,) = await self._batch(node, [_CLUSTER_SLOTS], deadline)
        except (BackendUnavailable, ConfigError) as error:
            return error
        if isinstance(reply, Exception):
            return refusal(reply, node.wire.address)
        slots = read_slots(reply, node.wire.address)
        if not any(slots):
            return BackendUnavailable(f"the server at {node.wire.address} serves no slots yet")
        self._stale = False
        self._set_slots(slots)
        return None

    def _set_slots(self, slots: list[Endpoint | None]) -> None:
        self._slots = slots

    async def _send_to(
        self, node: ClusterNode, send: Callable[[ClusterNode], Awaitable[Any]]
    ) -> Any:
        try:
            reply = await send(node)
        except LockError:
            node.suspect = self._stale = True
            raise
        node.suspect = False
        return reply

    async def _batch(
        self, node: ClusterNode, commands: Sequence[bytes], deadline: float
    ) -> list[Any]:
        replies: list[Any] = await self._send_to(node, lambda n: n.wire.batch(commands, deadline))
        return replies

    # Redirects.

    async def _route(
        self, slot: int, send: Callable[[ClusterNode], Awaitable[Any]], deadline: float
    ) -> Any:
        """Sends a command to the server of `slot` and follows redirects.

        A command without a reply is left to the caller, who knows if it may be repeated.
        """
        left = REDIRECTS
        while True:
            try:
                if self._stale:
                    await self._refresh_slots(deadline)
                endpoint = self._slots[slot]
                if endpoint is None:
                    self._stale = True
                    raise BackendUnavailable(f"no server of the cluster serves slot {slot} now")
                node = self._node(endpoint)
                reply = await self._send_to(node, send)
            except Lost:
                raise
            except BackendUnavailable:
                # Nothing was sent. A server that is gone will be replaced.
                if self._closed or self._clock.now() + PAUSE >= deadline:
                    raise
                await Signal(self._clock).wait(self._clock.now() + PAUSE)
                continue
            code = code_of(reply) if isinstance(reply, Exception) else ""
            if code == "MOVED" and left:
                self._note_redirect(reply, node)
            elif code == "NOSCRIPT" and left:
                await self._load_scripts(node, deadline)
            else:
                if code == "CLUSTERDOWN":
                    self._stale = True
                return reply
            left -= 1

    def _note_redirect(self, reply: Exception, node: ClusterNode) -> None:
        slot, endpoint = read_redirect(reply, node.wire.address)
        slots = self._slots.copy()
        slots[slot] = endpoint
        self._set_slots(slots)
        self._redirected_to = endpoint
        self._stale = True  # where one slot has moved, others may have

    async def _follow_redirect(self, command: bytes, reply: Exception, deadline: float) -> Any:
        """Sends one command of a batch again that was redirected; `ASK` concerns this key only."""
        slot = slot_of_command(command)
        if code_of(reply) != "ASK":
            return await self._route(slot, lambda node: node.wire.call(command, deadline), deadline)
        endpoint = self._slots[slot]
        assert endpoint is not None
        _, target = read_redirect(reply, self._node(endpoint).wire.address)
        node = self._node(target)
        _, redirected_reply = await self._batch(node, [_ASKING, command], deadline)
        if isinstance(redirected_reply, Exception) and code_of(redirected_reply) == "NOSCRIPT":
            await self._load_scripts(node, deadline)
            _, redirected_reply = await self._batch(node, [_ASKING, command], deadline)
        return redirected_reply

    async def _load_scripts(self, node: ClusterNode, deadline: float) -> None:
        for reply in await self._batch(node, self._loads, deadline):
            if isinstance(reply, Exception) and code_of(reply) != "LOADING":
                raise refusal(reply, node.wire.address)
