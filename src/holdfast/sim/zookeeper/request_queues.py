"""The requests of one client that have arrived at servers, and wait to be carried out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.protocol.serialization import Create2, Delete, GetChildren2, SetData, Sync

from ...stores.zookeeper.client import PendingReply
from ...stores.zookeeper.requests import Step
from .ensemble import Ensemble, EnsembleServer

AGAIN = 0.05
"""Seconds after which a server tries again to carry out a request that waits for the leader."""
WRITES = (Create2, Delete, SetData, Step)

Reply = Callable[[int, EnsembleServer, PendingReply, Any], None]
"""A function that sends a reply to the client, on the connection of that number."""


class RequestQueues:
    """One queue of requests for each server and session, and the watches that they left."""

    def __init__(self, ensemble: Ensemble, reply: Reply) -> None:
        self._ensemble = ensemble
        self._reply = reply
        self._queues: dict[tuple[EnsembleServer, int], deque[tuple[int, Any, PendingReply]]] = {}
        """By server and session id."""
        self.watches: dict[tuple[str, str], Callable[[Any], None]] = {}
        """By path, and by what is watched there: data or children."""

    def receive(
        self,
        connection: int,
        server: EnsembleServer,
        session_id: int,
        request: Any,
        pending: PendingReply,
    ) -> None:
        """Takes a request that arrives at `server`."""
        session = self._ensemble.sessions.get(session_id)
        if session is not None and session.home is server and connection < session.connection:
            return  # there is a newer connection to this server: it has closed this one
        server.heard.add(session_id)
        queue = self._queues.setdefault((server, session_id), deque())
        queue.append((connection, request, pending))
        if len(queue) == 1:
            self._carry_out_all(server, session_id)

    def _carry_out_all(self, server: EnsembleServer, session_id: int) -> None:
        """Carries out requests one after the other, also those of an earlier connection to `server`.

        A request that cannot be agreed to now holds up those behind it.
        """
        queue = self._queues[server, session_id]
        while queue:
            connection, request, pending = queue[0]
            if not server.up:
                queue.clear()
                return
            if isinstance(request, (*WRITES, Sync)) and not self._can_carry_out(server, request):
                # It may yet be agreed to, when nobody waits for it any more.
                again = (self._carry_out_all, server, session_id)
                self._ensemble.loop.after(AGAIN, server.process, *again)
                return
            queue.popleft()
            reply = self._carry_out(server, request, session_id)
            if reply is None:
                queue.clear()  # the session has moved, or ended
                return
            self._reply(connection, server, pending, reply)

    def _can_carry_out(self, server: EnsembleServer, request: Any) -> bool:
        if isinstance(request, Sync) and server is self._ensemble.leader:
            return True  # a leader asks nobody
        return self._ensemble.can_agree(server)

    def _carry_out(self, server: EnsembleServer, request: Any, session_id: int) -> Any:
        """Returns the reply; None if the session is not on `server` any more."""
        ensemble = self._ensemble
        if isinstance(request, WRITES):
            session = ensemble.sessions.get(session_id)
            if session is None or session.home is not server:
                return None
            reply = ensemble.write(session, request)
            ensemble.catch_up(server)
            return reply
        if isinstance(request, Sync) and ensemble.has_majority(server):
            ensemble.catch_up(server)
        reply = ensemble.read(server, request)
        watcher = getattr(request, "watcher", None)
        if watcher is not None and not isinstance(reply, Exception):
            kind = "children" if isinstance(request, GetChildren2) else "data"
            self.watches[request.path, kind] = watcher
        return reply
