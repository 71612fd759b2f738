"""What can be asked of an ensemble: to open, to acquire, to renew, to release, to close.

Each question ends by telling `done` the result, or the exception to raise; now, or from the thread of a
connection. `queue` has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...clock import Clock
from ...entries import Claim
from ...errors import BackendUnavailable
from ...model import Granted, Queued, Renewed, Waiting
from ...refusals import owner_used_again
from .address import Address
from .client import sync
from .names import Naming
from .node import ASKING, LEAVING, TAKING, WAITING, Asked, Done, Node
from .queue import Queue
from .renewal import Renewal
from .session import CLASSES, Link

DEFAULT_CLASS = 30.0


class Store(Queue):
    def __init__(
        self, address: Address, naming: Naming, clock: Clock, claim_window: float, tick: float
    ) -> None:
        super().__init__(naming, clock, claim_window)
        self.address = address
        self.tick = tick
        self._links: dict[float, Link] = {}
        """By the TTL that they were opened for."""
        self._closed = False

    def open(self, done: Done) -> None:
        with self.mutex:
            link = self.link(DEFAULT_CLASS)
        link.send_all([sync(self.naming.root)], lambda answers: done(answers[0]))

    def link(self, ttl: float) -> Link:
        """The session for this TTL, which may have still to be opened. Under the mutex."""
        if self._closed:
            raise closed()
        for link in self._links.values():
            if link.ready and link.ttl < link.asked <= ttl:
                return link  # the ensemble gives no longer ones
        seconds = next((one for one in CLASSES if one >= ttl), CLASSES[-1])
        found = self._links.get(seconds)
        if found is None:
            found = self._links[seconds] = Link(self, seconds)
            found.start()
        return found

    def any_link(self) -> Link:
        with self.mutex:
            if self._closed:
                raise closed()
            links = self._links.values()
            return next((link for link in links if link.ready), None) or self.link(DEFAULT_CLASS)

    def acquire(self, ticket: Asked, done: Done) -> None:
        with self.mutex:
            known = self._nodes.get(ticket.owner)
            if known is not None:
                self._ask_again(known, ticket, done)
                return
            link = self.link(ticket.ttl)
            if link.trouble is not None:
                raise link.trouble
            node = Node(ticket, self.naming.lock(ticket.name), link, done, self.clock.now())
            self._nodes[node.owner] = link.nodes[node.owner] = node
            self._drive(node)

    def _ask_again(self, node: Node, ticket: Asked, done: Done) -> None:
        same = (node.name, node.shape, node.weight) == (
            ticket.name,
            f"{ticket.kind},{ticket.capacity}",
            ticket.weight,
        )
        if not same or node.state == LEAVING:
            done(owner_used_again(node.owner, node.name))
        elif node.state == ASKING:
            node.answer = done
        else:

            def answered(outcomes: Any) -> None:
                outcome = outcomes[0]
                if isinstance(outcome, Renewed):
                    done(Granted(outcome.token, outcome.ttl, False, outcome.since))
                elif isinstance(outcome, Waiting):
                    done(Queued(outcome.remaining, outcome.since))
                else:
                    done(BackendUnavailable(f"the request for {node.name!r} was lost"))

            self.renew([Claim(node.name, node.owner, node.ttl)], answered)

    def renew(self, claims: Sequence[Claim], done: Done) -> None:
        with self.mutex:
            if self._closed:
                raise closed()
            Renewal(self, claims, done).start()

    def node(self, name: str, owner: str) -> Node | None:
        node = self._nodes.get(owner)
        return node if node is not None and node.name == name else None

    def release(self, name: str, owner: str, done: Done) -> None:
        """Told whether it was held; None if it is not known here."""
        with self.mutex:
            if self._closed:
                raise closed()
            node = self.node(name, owner)
            if node is None:
                done(None)
                return
            node.left.append(done)
            self._leave(node)

    def holds(self, owner: str) -> tuple[float, int] | None:
        """What is left of it by our own timer, and its token; None if it is not one of ours.

        The token is 0 for one that is admitted and has not been granted yet.
        """
        with self.mutex:
            node = self._nodes.get(owner)
            if node is None:
                return None
            if node.state in (WAITING, TAKING):
                return node.claim, 0
            return max(0.0, node.expires - self.clock.now()), node.token

    def overdue(self) -> None:
        """An answer did not come in time: perhaps another node of the ensemble has one."""
        with self.mutex:
            for link in self._links.values():
                link.overdue()

    def close(self) -> list[Link]:
        """No more of anything; answers the sessions, which are still to be ended."""
        with self.mutex:
            self._closed = True
            links = list(self._links.values())
            nodes = list(self._nodes.values())
        self._alarm.close()
        for node in nodes:
            node.ticket.tell()
        return links


def closed() -> BackendUnavailable:
    return BackendUnavailable("this connection to ZooKeeper is closed")
