"""No descriptor is left by which waiters would be woken: they are granted, or refused, all the same."""

from __future__ import annotations

import errno
import os

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from worlds.aio import Job


def refuse(*words: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("url", ["sqlite", "mariadb", "postgres"], indirect=True)
@pytest.mark.parametrize("call", ["pipe", "dup"])
async def test_whoever_waits_is_granted_or_refused(
    url: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        held = await others.lock("a").acquire()
        await locks.inspect("a")
        monkeypatch.setattr(os, call, refuse)
        waiting = Job(locks.lock("a").acquire)
        if url.startswith("sqlite") and call == "dup":
            assert isinstance(await waiting.error(), holdfast.BackendUnavailable)
            assert not (await others.inspect("a")).waiters
            monkeypatch.undo()
            waiting = Job(locks.lock("a").acquire)
        await until_waiting(others, name="a")
        await held.release()
        await (await waiting.result()).release()
        monkeypatch.undo()
        async with others.lock("a"):
            waiting = Job(locks.lock("a").acquire)
            await until_waiting(others, name="a")
        await (await waiting.result()).release()


async def test_a_manager_that_may_open_nothing_says_so_and_is_used_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a module is needed for the first time, too: no store can catch that itself."""
    locks = holdfast.connect("memory://")
    monkeypatch.setattr(locks._opening, "_opener", refuse)
    for _ in range(2):
        with pytest.raises(holdfast.BackendUnavailable, match="may open nothing more: Too many"):
            await locks.inspect("a")
        with pytest.raises(holdfast.BackendUnavailable, match=r"could not be acquired.*Too many"):
            await locks.lock("a").acquire()
    monkeypatch.undo()
    async with locks, locks.lock("a"):
        monkeypatch.setattr((await locks._session()).backend, "list", refuse)
        with pytest.raises(holdfast.BackendUnavailable, match=r"asked for its locks.*Too many"):
            await locks.list()
        monkeypatch.undo()
        assert len(await locks.list()) == 1


async def test_another_error_of_the_system_is_not_taken_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*words: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    locks = holdfast.connect("memory://")
    monkeypatch.setattr(locks._opening, "_opener", fail)
    with pytest.raises(OSError, match="Input/output"):
        await locks.inspect("a")
    monkeypatch.undo()
    async with locks:
        monkeypatch.setattr((await locks._session()).backend, "list", fail)
        with pytest.raises(OSError, match="Input/output"):
            await locks.list()
