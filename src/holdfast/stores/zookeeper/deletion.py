"""How a node of ours ends: it is given back, or given up, or gone without our doing.

- *Nothing is forgotten.* A deletion that was not answered is sent again on the next connection; whoever
  asked for it may long be gone.
- *It ends by our own clock.* A held node that was not renewed within its TTL is deleted by us,
  since the session, which others share, may live on; if we cannot, the session's end does it.

All state is behind one mutex. Answers come in the connection's thread; nothing here waits for anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any

from ... import admission as lineup
from ..._runtime.threads import Alarm
from ...clock import Clock
from ...errors import BackendUnavailable
from .client import NoNodeError, Unanswered, delete, get_children, sync
from .names import Naming, in_line
from .node import ASKING, HELD, LEAVING, OVER, Node


class Ending(ABC):
    """What the queue knows of its nodes, and how it gets rid of them. Under the mutex."""

    def __init__(self, naming: Naming, clock: Clock, claim_window: float) -> None:
        self.naming = naming
        self.clock = clock
        self.mutex = RLock()
        self.look: Callable[[Iterable[str]], None] | None = None
        self._claim_window = claim_window
        self._nodes: dict[str, Node] = {}
        """By owner."""
        self._parents: dict[str, None] = {}
        """Locks whose node was there when we last looked."""
        self._alarm = Alarm(clock)

    def ring_at(self, due: float, ring: Callable[[], None]) -> None:
        self._alarm.at(due, ring)

    @abstractmethod
    def _drive(self, node: Node) -> None:
        """Do what comes next, if nothing is under way and there is a connection."""

    def _send(self, node: Node, request: Any, then: Callable[[Node, Any, Any], None]) -> None:
        turn = node.turn

        def answered(value: Any, error: Exception | None) -> None:
            with self.mutex:
                if node.turn == turn and node.state != OVER:
                    then(node, value, error)

        node.link.send(request, answered)

    def _rang(self, node: Node) -> None:
        with self.mutex:
            if node.state != HELD or node.ring is None:
                return
            if self.clock.now() < node.expires:
                self._alarm.at(node.expires, node.ring)
                return
            node.final = False  # its lease has ended: whoever releases it now is told so
            self._leave(node)
            node.freed = False
            self._tell_of([node.owner])

    def _leave(self, node: Node) -> None:
        """From now on it is to be deleted, however long that takes."""
        if node.state in (LEAVING, OVER):
            return
        node.freed = node.state == HELD
        node.state = LEAVING
        self._unwatch(node)
        if node.ring is not None:
            self._alarm.cancel(node.ring)
            node.ring = None
        if node.final is None:
            # Who asked for it may still wait: it was given up by somebody else, such as `close`.
            self._reply(node, _given_up(node.name))
        self._settle(node)
        if node.path and node.link.ready:
            # Behind whatever is under way for it.
            self._delete(node)
        else:
            self._drive(node)

    def _delete(self, node: Node) -> None:
        node.going = True
        if not node.freed and node.final is None:
            # It waited. If it is our turn by now, then a lease ends here, not a wait.
            self._send(node, sync(self.naming.root), ignored)
            self._send(node, get_children(node.parent), self._leaves)
        self._send(node, delete(node.path), self._deleted)

    def _leaves(self, node: Node, value: Any, error: Any) -> None:
        if error is None:
            line = in_line(value[0])
            free = lineup.admitted([entry.place for entry in line])
            node.freed = any(entry.name == node.child for entry in line[:free])

    def _deleted(self, node: Node, value: Any, error: Any) -> None:
        if isinstance(error, Unanswered):
            node.going = False
            node.doubtful = True
            return
        if isinstance(error, NoNodeError) and not node.doubtful:
            node.freed = False
        elif error is not None and not isinstance(error, NoNodeError):
            node.trouble = error
        self._finish(node)

    def _finish(self, node: Node) -> None:
        """It is not there any more."""
        self._drop(node)
        if node.final is not None:
            self._reply(node, node.final)
        for done in node.left:
            done(node.freed if node.trouble is None else unanswered(node.name, node.trouble))

    def _lose(self, node: Node) -> None:
        """It has gone without our doing: by a foreign hand, or with its session."""
        self._unwatch(node)
        if node.answer is not None and node.final is None and not node.left:
            # Whoever asked still waits for the first answer: start again.
            node.turn += 1
            node.state = ASKING
            node.path, node.session = "", 0
            node.busy = node.unsure = False
            self._drive(node)
            return
        node.freed = False
        self._finish(node)
        node.ticket.tell()
        self._tell_of([node.owner])

    def _refuse(self, node: Node, error: Exception) -> None:
        self._drop(node)
        self._reply(node, unanswered(node.name, error))
        for done in node.left:
            done(False)

    def _drop(self, node: Node) -> None:
        node.state = OVER
        self._unwatch(node)
        if node.ring is not None:
            self._alarm.cancel(node.ring)
            node.ring = None
        if self._nodes.get(node.owner) is node:
            del self._nodes[node.owner]
        node.link.nodes.pop(node.owner, None)
        self._settle(node)

    def _reply(self, node: Node, result: Any) -> None:
        answer, node.answer = node.answer, None
        if answer is not None:
            answer(result)

    def _settle(self, node: Node) -> None:
        settled, node.settled = node.settled, []
        for done in settled:
            done()

    def _unwatch(self, node: Node) -> None:
        node.sole = ""
        if node.watching:
            node.link.unwatch(node.watching, node)
            node.watching = ""
        if node.watched:
            node.link.unwatch(node.path, node)
            node.watched = False

    def _tell_of(self, owners: Sequence[str]) -> None:
        if self.look is not None and owners:
            self.look(owners)


def unanswered(name: str, error: Exception) -> BackendUnavailable:
    return BackendUnavailable(
        f"ZooKeeper could not do what was asked for {name!r}: {type(error).__name__}", name=name
    )


def _given_up(name: str) -> BackendUnavailable:
    return BackendUnavailable(f"the request for {name!r} was given up", name=name)


def ignored(node: Node, value: Any, error: Any) -> None:
    """If it failed, what was sent behind it fails too, and says so."""
