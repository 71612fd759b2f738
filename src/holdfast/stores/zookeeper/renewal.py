"""Renewing many at once: one write for each session, and a look at those that are not watched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...entries import Claim
from ...errors import GuaranteeError
from ...model import GONE, UNKNOWN, Outcome, Renewed, Waiting
from .client import NoNodeError, Unanswered, get_children, get_data
from .names import in_line
from .node import HELD, LEAVING, OVER, TAKING, WAITING, Done, Node
from .session import Link

if TYPE_CHECKING:
    from .store import Store


class Renewal:
    """One answer for many claims: a write for each session, and a look at what is not watched."""

    def __init__(self, store: Store, claims: Sequence[Claim], done: Done) -> None:
        self._store = store
        self._claims = claims
        self._done = done
        self._sent = store.clock.now()
        self._outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        self._left = 1
        """Answers to come, and one for `start` itself."""

    def start(self) -> None:
        links: dict[Link, dict[int, Node]] = {}
        for number, claim in enumerate(self._claims):
            node = self._store.node(claim.name, claim.owner)
            if node is None or node.state == LEAVING:
                self._outcomes[number] = GONE
                continue
            # What was asked for at first may have been more than there is: that is no new wish.
            if node.state == HELD and claim.ttl > max(node.ttl, node.asked):
                raise _too_long(node, claim.ttl)
            if node.link.ready:
                links.setdefault(node.link, {})[number] = node
        for link, nodes in links.items():
            self._of_session(link, nodes)
        self._answered()

    def _of_session(self, link: Link, nodes: dict[int, Node]) -> None:
        proved = False

        def wrote(value: Any, error: Exception | None) -> None:
            nonlocal proved
            with self._store.mutex:
                proved = error is None
                for number, node in nodes.items():
                    if proved and node.watched:
                        self._note(number, node)
                self._answered()

        def looked(number: int, node: Node, value: Any, error: Exception | None) -> None:
            with self._store.mutex:
                if node.state == HELD and isinstance(error, NoNodeError):
                    self._store.vanished(node)
                elif node.state == HELD and error is None:
                    node.watched = True
                if proved and not isinstance(error, Unanswered):
                    self._note(number, node)
                self._answered()

        def listed(some: dict[int, Node], value: Any, error: Exception | None) -> None:
            with self._store.mutex:
                if proved and not isinstance(error, Unanswered):
                    line = in_line(value[0]) if error is None else []
                    pzxid = value[1].pzxid if error is None else 0
                    for number, node in some.items():
                        remaining = self._store.look_around(node, line, pzxid)
                        self._note(number, node, remaining)
                self._answered()

        self._left += 1
        link.prove(wrote)
        waiting: dict[str, dict[int, Node]] = {}
        for number, node in nodes.items():
            if node.state == HELD and not node.watched:
                self._left += 1
                watcher = link.watch(node.path, node)
                link.send(get_data(node.path, watcher), partial(looked, number, node))
            elif node.state in (WAITING, TAKING):
                waiting.setdefault(node.parent, {})[number] = node
        # After the write on the same connection: what is read was true when that was agreed to, or
        # later.
        for parent, some in waiting.items():
            self._left += 1
            link.send(get_children(parent), partial(listed, some))

    def _note(self, number: int, node: Node, remaining: float = 0.0) -> None:
        if node.state == HELD:
            node.expires = max(node.expires, self._sent + node.ttl)
            since = node.link.vouch(self._sent)
            self._outcomes[number] = Renewed(node.token, min(node.ttl, node.link.ttl), since)
        elif node.state == WAITING:
            self._outcomes[number] = Waiting(remaining, node.link.vouch(self._sent))
        elif node.state in (LEAVING, OVER):
            self._outcomes[number] = GONE
        elif node.state == TAKING:
            self._left += 1

            def settled() -> None:
                self._note(number, node)
                self._answered()

            node.settled.append(settled)

    def _answered(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done(self._outcomes)


def _too_long(node: Node, ttl: float) -> GuaranteeError:
    return GuaranteeError(
        f"{node.name!r} is held on a ZooKeeper session that gives it {node.ttl:g} s, so it cannot be "
        f"renewed for {ttl:g} s; acquire it with that ttl",
        name=node.name,
        owner=node.owner,
        token=node.token,
    )
