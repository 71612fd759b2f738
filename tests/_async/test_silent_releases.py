"""Releases in the background, when `close()` comes: none is begun after it.

A crowd was cancelled, and the store answers nothing: what could not be released is told by events.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.model import Label, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from stores import STORES
from worlds.aio import eventually

CROWD = 3000


@pytest.mark.parametrize("store", ["http", "postgres", "redis"])
async def test_a_close_leaves_no_release_under_way(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        host, _, rest = url.removeprefix(f"{url.partition('://')[0]}://").partition(":")
        port = rest.partition("/")[0]
        proxy = Proxy(int(port))
        locks = holdfast.connect(url.replace(f"{host}:{port}", f"127.0.0.1:{proxy.port}"))
        told: list[str] = []
        try:
            session = await locks._session()
            backend: Any = session.backend
            release, begun = backend.release, []

            async def counted(name: str, owner: str, deadline: float) -> bool:
                begun.append(owner)
                freed: bool = await release(name, owner, deadline)
                return freed

            backend.release = counted
            locks.on_event(lambda event: told.append(event.owner))
            proxy.hold()
            owners = [new_owner() for _ in range(CROWD)]
            for owner in owners:
                terms = Terms("x", 60.0, Label("", 0, ""))
                session.pending_releases.add(Ticket(terms, owner, False))
            await locks.close()
            by_then = len(begun)
            # unasync: aio-only
            assert not session.pending_releases  # a thread that is in a call is not waited for
            # unasync: end
            await eventually(lambda: len(told) == CROWD)
            assert sorted(told) == sorted(owners)
            assert len(begun) == by_then
        finally:
            proxy.release()
            proxy.close()
