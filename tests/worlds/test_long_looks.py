"""A look at many locks leaves the event loop to others in between: to renewals, above all."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast._runtime.aio.pieces import PIECE
from holdfast.stores.etcd.keys import Naming, StoredEntry
from holdfast.stores.zookeeper import attempt, names
from holdfast.stores.zookeeper._async import inspection

LOCKS = 3 * PIECE
PER_LOCK: dict[str, list[tuple[Any, str]]] = {
    "etcd": [(Naming, "stored_entry"), (StoredEntry, "participant")],
    "zookeeper": [
        (inspection, "decode_name"),
        (names.Naming, "lock"),
        (attempt, "read_data"),
    ],
}
"""What is called once for each lock, or more often."""


class Turns:
    """The turns of the loop, and how often each function was called in the one that had most of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, functions: list[tuple[Any, str]]) -> None:
        self._turn = 0
        self._calls: Counter[tuple[str, int]] = Counter()
        for home, name in functions:
            monkeypatch.setattr(home, name, self._counted(name, getattr(home, name)))

    def _counted(self, name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            self._calls[name, self._turn] += 1
            return function(*args)

        return call

    async def count(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    def busiest(self, name: str) -> int:
        return max(count for (called, _), count in self._calls.items() if called == name)


@pytest.mark.parametrize("url", sorted(PER_LOCK), indirect=True)
@pytest.mark.parametrize("look", ["list", "inspect"])
async def test_the_loop_has_its_turns_during_a_look_at_many(
    url: str, look: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    functions = PER_LOCK[request.node.callspec.params["url"]]
    async with holdfast.connect(url) as locks:
        for number in range(LOCKS):
            if look == "list":
                await locks.lock(f"{number:03}").acquire()
            else:
                await locks.semaphore("x", permits=LOCKS).acquire()
        turns = Turns(monkeypatch, functions)
        counting = asyncio.create_task(turns.count())
        if look == "list":
            assert len(await locks.list()) == LOCKS
        else:
            functions = functions[-1:]
            assert len((await locks.inspect("x")).holders) == LOCKS
        counting.cancel()
        monkeypatch.undo()
        assert all(turns.busiest(name) <= PIECE for _, name in functions)
