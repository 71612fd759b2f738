"""How a node of ours gets into the queue, whatever answers are lost on the way.

- *A node is ours if the session that is alive says so.* A creation whose answer was lost is found again
  by the owner in its name; but a node of an earlier session of ours is dying, and never ours.
- *Nothing is forgotten.* One that was given up before its creation was answered is looked for, and
  deleted.

All state is behind one mutex. Answers come in the connection's thread; nothing here waits for anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from .client import (
    EPHEMERAL,
    SEQUENTIAL,
    NoNodeError,
    Unanswered,
    create,
    create_container,
    delete,
    get_children,
    get_data,
    set_data,
)
from .deletion import Ending, ignored
from .names import in_line, sequence_of
from .node import ASKING, WAITING, Node

KNOWN_PARENTS = 10_000
MOST_TRIES = 5


class Joining(Ending):
    """Under the mutex."""

    @abstractmethod
    def _judge(self, node: Node, names: Sequence[str], stat: Any) -> None:
        """These are all who are in the queue: where does that leave us?"""

    def _create(self, node: Node) -> None:
        link = node.link
        node.ttl = link.ttl if node.renewed else min(node.asked, link.ttl)
        node.claim = min(self._claim_window, node.ttl)
        node.busy = node.unsure = True
        node.trouble = None
        node.tries += 1
        if node.tries > 2:  # somebody has removed more than the lock's own node
            for path in self.naming.needed():
                self._send(node, create(link.client, path, b""), ignored)
        if node.parent not in self._parents:
            self._send(node, create_container(link.client, node.parent), ignored)
        request = create(link.client, node.prefix, node.label, EPHEMERAL | SEQUENTIAL)
        self._send(node, request, self._created)
        self._send(node, get_children(node.parent), self._listed)

    def _created(self, node: Node, value: Any, error: Any) -> None:
        if error is None:
            path, stat = value
            self._found(node, path, stat)
        elif isinstance(error, NoNodeError):
            node.unsure = False
            self._parents.pop(node.parent, None)
        elif not isinstance(error, Unanswered):
            node.unsure = False
            node.trouble = error

    def _found(self, node: Node, path: str, stat: Any) -> None:
        node.unsure = False
        node.path = path
        node.sequence = sequence_of(path)
        node.zxid = stat.czxid
        node.session = stat.ephemeralOwner
        self._parents[node.parent] = None
        if len(self._parents) > KNOWN_PARENTS:
            del self._parents[next(iter(self._parents))]

    def _listed(self, node: Node, value: Any, error: Any) -> None:
        node.busy = False
        if not node.path:
            if node.trouble is not None:
                self._refuse(node, node.trouble)
            elif not node.unsure:  # the lock's own node was missing
                if node.tries > MOST_TRIES:
                    self._refuse(node, error or NoNodeError())
                else:
                    self._drive(node)
            return  # otherwise on the next connection
        if node.state != ASKING:
            self._drive(node)
        elif error is None:
            self._judge(node, *value)
        else:
            node.state = WAITING
            self._drive(node)

    def _seek(self, node: Node) -> None:
        """Has it been created, or not? By a read behind a write: that shows all that was agreed to.

        Behind a `sync` it might come from a leader that has lost its followers.
        """
        node.busy = True
        self._send(node, set_data(node.link.beat, b""), ignored)
        self._send(node, get_children(node.parent), self._sought)

    def _sought(self, node: Node, value: Any, error: Any) -> None:
        node.busy = False
        if isinstance(error, Unanswered):
            return
        names = value[0] if error is None else []
        mine = [entry for entry in in_line(names) if entry.owner == node.owner]
        if not mine:
            node.unsure = False
            self._drive(node)
            return
        path = f"{node.parent}/{mine[-1].name}"
        node.busy = True
        self._send(node, get_data(path), partial(self._recognised, path))

    def _recognised(self, path: str, node: Node, value: Any, error: Any) -> None:
        node.busy = False
        if isinstance(error, Unanswered):
            return
        if error is None and value[1].ephemeralOwner == node.link.session:
            self._found(node, path, value[1])
            if node.state == ASKING:
                node.state = WAITING  # it may have stood there for long: no token by its creation
        elif error is None:
            # Of a session of ours that is dying: not ours any more, and only in the way.
            node.link.send(delete(path), _nobody)
            node.unsure = False
        self._drive(node)


def _nobody(value: Any, error: Any) -> None:
    """Nobody waits for this."""
