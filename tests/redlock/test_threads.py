"""What only threads can do to each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast._sync.contract import Ticket
from holdfast.entries import Claim
from holdfast.model import GONE, Label, Queued, new_owner
from servers.redlock import RedlockNodes
from worlds.threads import eventually

TTL = 20.0


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    made = RedlockNodes(3)
    try:
        yield made
    finally:
        made.stop()


def test_who_gives_up_at_the_moment_of_the_grant_leaves_nothing(nodes: RedlockNodes) -> None:
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0) as locks:
        held = locks.lock("x", ttl=TTL).acquire()
        backend: Any = locks._session().backend
        ticket = Ticket("x", new_owner(), TTL, Label("here", 1))
        by = backend.clock.now() + 20.0
        assert isinstance(backend.acquire(ticket, by), Queued)
        keep = backend._rounds._keep

        def overtaken(owner: str, hold: Any) -> None:
            leaving = threading.Thread(target=backend.release, args=("x", owner, by))
            leaving.start()
            leaving.join(20.0)
            keep(owner, hold)

        backend._rounds._keep = overtaken
        assert held.release() is True
        assert backend.renew([Claim("x", ticket.owner, TTL)], by) == [GONE]
        eventually(lambda: [node("EXISTS", "holdfast:{x}") for node in nodes.nodes] == [0] * 3)
