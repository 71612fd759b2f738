"""A look at many locks: few requests, none of them too long, and entries that vanish meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from _async.conformance.test_contract import bench
from holdfast import aio as holdfast
from holdfast.model import Queued
from holdfast.stores.zookeeper._async import inspection
from holdfast.stores.zookeeper.reads import AT_ONCE, LONGEST, in_few, names_of_children
from worlds.aio import eventually

LONG_NAMES = 350
"""Locks whose paths are longer together than a request may be: a megabyte."""


async def test_names_may_be_long(url: str) -> None:
    names = [f"{number:03}" + "ß" * 510 for number in range(LONG_NAMES)]
    async with holdfast.connect(url) as locks:
        for name in names:
            await locks.lock(name).acquire()
        assert [state.name for state in await locks.list()] == names


async def test_what_vanishes_between_two_reads_is_left_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(url) as store:
        gone, first, second, third = (store.ticket(name) for name in ("a", "b", "b", "b"))
        for one in (gone, first):
            await store.grant(one)
        for one in (second, third):
            assert isinstance(await store.ask(one), Queued)
        living = inspection.Inspection._living

        async def release(*args: Any) -> Any:
            monkeypatch.undo()
            await store.release(gone)
            await store.release(second)

            async def left() -> bool:
                """Whether the server that is asked, which may be another one, knows of it."""
                state = await store.backend.inspect("b", store.deadline())
                return [waiter.owner for waiter in state.waiters] == [third.owner]

            await eventually(left)
            return await living(*args)

        monkeypatch.setattr(inspection.Inspection, "_living", release)
        (state,) = await store.backend.list("", store.deadline())
        assert [holder.owner for holder in state.holders] == [first.owner]
        assert [waiter.owner for waiter in state.waiters] == [third.owner]


def test_a_request_has_so_many_reads_and_no_more() -> None:
    reads = [names_of_children(f"/{number}") for number in range(2 * AT_ONCE + 1)]
    assert [len(request.reads) for request in in_few(reads)] == [AT_ONCE, AT_ONCE, 1]
    assert [read for request in in_few(reads) for read in request.reads] == reads
    long = [names_of_children("/" + "x" * (LONGEST - 1))] * 3
    assert [len(request.reads) for request in in_few(long)] == [1, 1, 1]
    assert list(in_few([])) == []
