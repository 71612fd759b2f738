"""The queue of ephemeral nodes: how one that is in it waits, becomes the holder, and is kept.

Every attempt is a node of its own below the lock's, in the order that ZooKeeper gave them; who of
them may hold the lock is the rule in `lineup`. It stays true whatever is lost on the way:

- *The token is a zxid at which we had become the holder*, and after everybody who could not hold it
  along with us had gone. That is our creation, if the read that follows shows us admitted and no
  child of the lock came or went since (the parent's pzxid is still our czxid). Later, for one who
  holds the lock alone, it is the pzxid of a read that shows us first: at least the deletion that
  let us in, and below our own deletion, which everybody after us is above. For those who share it
  that could be the same number twice; they write to their own node, on the condition that it is as
  they left it, and the zxid of that write is the token.
- *Somebody else's clock never makes us the holder.* That read may come from a node that was cut
  off. But it is used only while our last answered *write* still vouches for the session, and so for
  our node; the engine counts from that. A write to our node follows at once: it shows the token,
  and would fail.
- *Nothing is forgotten.* What was sent and not answered is settled on the next connection: see
  `joining` and `ending`. Whoever asked may long be gone.

A waiter watches what `lineup.blocker` says: the only one before it, everything if it is the first who
waits, otherwise its predecessor. ZooKeeper's watches are told in order with what is read after them,
so what was read and is watched needs no second look. After a lost connection everything is read anew.

All state is behind one mutex. Answers come in the connection's thread; nothing here waits for anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ... import admission as lineup
from ...errors import ConfigError
from ...model import Busy, Granted, Queued
from ...refusals import in_use_as
from .client import BadVersionError, Unanswered, get_children, get_data, set_data
from .creation import Joining
from .names import Entry, in_line
from .node import ASKING, HELD, LEAVING, OVER, TAKEN, TAKING, WAITING, Node
from .session import Link


class Queue(Joining):
    """How a node of ours waits, and becomes the holder. Under the mutex."""

    def _drive(self, node: Node) -> None:
        """Do what comes next, if nothing is under way and there is a connection."""
        if node.busy or not node.link.ready:
            return
        if node.state == ASKING:
            if node.unsure:
                self._seek(node)
            else:
                self._create(node)
        elif node.state == WAITING:
            self._reconsider(node)
        elif node.state == TAKING:
            self._take(node)
        elif node.state == LEAVING:
            if node.unsure:
                self._seek(node)
            elif not node.path:
                self._finish(node)
            elif not node.going:
                self._delete(node)

    def _judge(self, node: Node, names: Sequence[str], stat: Any) -> None:
        """These are all who are in the queue: where does that leave us?"""
        first = node.answer is not None
        if len(names) == 1 and names[0] == node.child:
            self._admit(node, stat.pzxid)
            return
        line = in_line(names)
        mine = next((i for i, one in enumerate(line) if one.name == node.child), None)
        if mine is None:
            self._lose(node)
            return
        places = [entry.place for entry in line]
        if first and places[0].shape != node.shape:
            node.final = _other_kind(node, line[0])
            self._leave(node)
            return
        target = lineup.blocker(places, mine)
        if target is None:
            self._admit(node, stat.pzxid)
            return
        free = lineup.admitted(places)
        remaining = max((entry.ttl for entry in line[:free]), default=0.0)
        if first and not node.wait:
            node.final = Busy(remaining)
            self._leave(node)
            return
        node.state = WAITING
        if first:
            node.ticket.ttl = node.ttl  # whoever is handed the lock counts on that
            self._reply(node, Queued(remaining, node.link.vouch(node.sent)))
        if target != lineup.ALL or node.watching != node.parent:
            self._watch(node, line, mine, target)
        elif node.stirred:
            self._reconsider(node)

    def _admit(self, node: Node, pzxid: int) -> None:
        """We were seen admitted, in a read that showed `pzxid` as the latest change of the line."""
        if pzxid == node.zxid and node.state == ASKING:
            self._hold(node, node.zxid, self._first_term(node))
        elif node.alone:
            self._hold(node, pzxid, self._first_term(node))
            self._mark(node)
        else:
            node.state = TAKING
            self._drive(node)

    def _claim(self, node: Node) -> None:
        """The only one before us has gone: are we still there, and what was the latest change?"""
        node.busy = True
        node.stirred = False
        self._send(node, get_children(node.parent), self._claimed)

    def _claimed(self, node: Node, value: Any, error: Any) -> None:
        node.busy = False
        if node.state != WAITING or isinstance(error, Unanswered):
            self._drive(node)
        elif error is not None or node.child not in value[0]:
            self._lose(node)
        else:
            self._admit(node, value[1].pzxid)

    def _watch(self, node: Node, line: Sequence[Entry], mine: int, target: int) -> None:
        self._unwatch(node)
        link = node.link
        node.busy = True
        if target == lineup.ALL:
            node.watching = node.parent
            watcher = link.watch(node.parent, node)
            self._send(node, get_children(node.parent, watcher), self._relisted)
            return
        path = f"{node.parent}/{line[target].name}"
        node.watching = path
        if mine == 1:
            node.sole = path
        self._send(node, get_data(path, link.watch(path, node)), self._watched)

    def _relisted(self, node: Node, value: Any, error: Any) -> None:
        """The first in line has read everything, and is told of any change from now on."""
        self._reconsidered(node, value, error)

    def _watched(self, node: Node, value: Any, error: Any) -> None:
        """The one before it was read, and is watched from now on."""
        node.busy = False
        if node.state != WAITING or isinstance(error, Unanswered):
            self._drive(node)
        elif error is not None and node.sole:
            self._claim(node)
        elif error is not None or node.stirred or (not node.sole and value[1].version > 0):
            # It has gone, or was granted the lock, since we read the line: that may be our turn.
            self._reconsider(node)

    def _reconsider(self, node: Node) -> None:
        node.busy = True
        node.stirred = False
        self._send(node, get_children(node.parent), self._reconsidered)

    def _reconsidered(self, node: Node, value: Any, error: Any) -> None:
        node.busy = False
        if node.state != WAITING or isinstance(error, Unanswered):
            self._drive(node)
        elif error is not None:
            self._lose(node)
        else:
            self._judge(node, *value)

    def _take(self, node: Node) -> None:
        """Become the holder: a write to our own node, if it is as it was when we created it."""
        self._unwatch(node)
        node.busy = True
        sent = self.clock.now()
        data = TAKEN + node.label
        self._send(node, set_data(node.path, data, 0), partial(self._taken, sent))

    def _taken(self, sent: float, node: Node, value: Any, error: Any) -> None:
        node.busy = False
        if error is None:
            if node.state == TAKING:
                self._hold(node, value.mzxid, self._first_term(node), sent)
            else:
                node.freed = True
                self._drive(node)
        elif isinstance(error, BadVersionError):
            # An earlier write of this kind, whose answer was lost: nobody else writes there.
            node.busy = True
            self._send(node, get_data(node.path), partial(self._had_taken, sent))
        elif isinstance(error, Unanswered):
            return
        elif node.state == TAKING:
            self._lose(node)

    def _had_taken(self, sent: float, node: Node, value: Any, error: Any) -> None:
        self._taken(sent, node, value[1] if error is None else None, error)

    def _mark(self, node: Node) -> None:
        """Let everybody see the token; and whoever is behind us learn that we hold the lock."""
        data = b"%d" % node.token + node.label
        self._send(node, set_data(node.path, data, 0), self._marked)

    def _marked(self, node: Node, value: Any, error: Any) -> None:
        if error is None or isinstance(error, BadVersionError):
            node.marked = True  # or it was before, and the answer was lost
        elif not isinstance(error, Unanswered) and node.state == HELD:
            self._lose(node)

    def _first_term(self, node: Node) -> float:
        """Whoever waits is handed it for the claim window, and confirms it by a renewal."""
        return node.ttl if node.answer is not None else node.claim

    def _hold(self, node: Node, token: int, term: float, sent: float | None = None) -> None:
        self._unwatch(node)
        node.state = HELD
        node.token = token
        node.marked = not (node.alone and token != node.zxid)
        node.expires = (self.clock.now() if sent is None else sent) + term
        node.ring = partial(self._rang, node)
        self._alarm.at(node.expires, node.ring)
        if node.answer is not None:
            since = node.link.vouch(node.sent)
            self._reply(node, Granted(token, node.ttl, False, since))
        else:
            node.ticket.tell(Granted(token, node.ttl, True))
        self._settle(node)

    # For renewals. Under the mutex.

    def vanished(self, node: Node) -> None:
        self._lose(node)

    def look_around(self, node: Node, line: Sequence[Entry], pzxid: int) -> float:
        """How does a waiter stand in this line? Answers what its holders have at the most."""
        places = [entry.place for entry in line]
        mine = next((i for i, one in enumerate(line) if one.name == node.child), None)
        if node.state != WAITING:
            return 0.0
        if mine is None:
            self._lose(node)
        elif lineup.blocker(places, mine) is None:
            self._admit(node, pzxid)
        elif not (node.busy or node.watching):
            self._reconsider(node)
        return max((entry.ttl for entry in line[: lineup.admitted(places)]), default=0.0)

    # What a session tells. Under the mutex.

    def noticed(self, node: Node, path: str, gone: bool) -> None:
        """Something that this node watches has changed."""
        if node.state == HELD:
            if path == node.path:
                node.watched = False
                if gone:
                    self._lose(node)
            return
        if node.state != WAITING:
            return
        sole = node.sole
        node.watching = node.sole = ""
        if gone and path == sole and not node.busy:
            # It was the only one before us, and nobody ever gets in between.
            self._claim(node)
        elif node.busy:
            node.stirred = True
        else:
            self._reconsider(node)

    def suspended(self, link: Link) -> None:
        """No connection: nothing is known of what is on this session until there is one again."""
        for node in link.nodes.values():
            node.watched = False
            node.watching = node.sole = ""
        self._tell_of([node.owner for node in link.nodes.values() if node.state == HELD])

    def resumed(self, link: Link) -> None:
        """Connected, with the same session or a new one: everything goes on from where it stands."""
        nodes = list(link.nodes.values())
        for node in nodes:
            if node.state == HELD and not node.marked:
                self._mark(node)
            elif node.state != OVER:
                self._drive(node)
        self._tell_of([node.owner for node in nodes if node.state == HELD])

    def session_over(self, link: Link) -> None:
        """All that was on this session has gone with it."""
        for node in list(link.nodes.values()):
            node.turn += 1
            node.busy = False
            if node.path:
                self._lose(node)
            elif node.state == LEAVING:
                self._finish(node)
            else:
                node.unsure = False

    def troubled(self, link: Link) -> None:
        for node in list(link.nodes.values()):
            self._drop(node)
            if link.trouble is not None:
                self._reply(node, link.trouble)
            for done in node.left:
                done(False)


def _other_kind(node: Node, first: Entry) -> ConfigError:
    return in_use_as(
        node.name, node.owner, (first.kind, first.capacity), (node.kind, node.capacity)
    )
