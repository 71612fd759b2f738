"""Nodes that come back, or start for the first time, while something else happens to them."""

from __future__ import annotations

from typing import Any

import pytest

from _async.redlock.scenes import MAX_TTL, connect
from holdfast import aio as holdfast
from holdfast.redlock.standing import read_marker
from servers.redlock import RedlockNodes
from worlds.aio import eventually

MARKER = "holdfast:redlock:marker"


async def test_a_marker_that_was_read_before_a_restart_does_not_count(nodes: RedlockNodes) -> None:
    """One who sees to all nodes reads it, and another finds meanwhile that the node has restarted."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        seat = backend._board.seats[0]
        marker = read_marker(nodes.nodes[0]("GET", MARKER))
        nodes.nodes[0].kill()
        nodes.nodes[0].start()
        backend._board.failed(0, "for a test")
        await eventually(lambda: "it has restarted" in seat.out)
        with pytest.raises(holdfast.BackendUnavailable, match="restarted meanwhile"):
            backend._nodes._votes(seat, marker)
        assert not seat.vote
