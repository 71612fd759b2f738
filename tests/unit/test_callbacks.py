"""A callback that would have to be awaited is refused, in both worlds: nobody would await it."""

from __future__ import annotations

import asyncio
import functools
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

import holdfast
import holdfast.aio


class Asynchronous:
    async def __call__(self, thing: object) -> None:
        pass

    async def method(self, thing: object) -> None:
        pass


async def function(thing: object) -> None:
    pass


async def generator(thing: object) -> Any:
    yield thing


REFUSED: list[Any] = [
    function,
    generator,
    functools.partial(functools.partial(function)),
    Asynchronous(),
    Asynchronous().method,
    AsyncMock(),
    None,
    "print",
]


@pytest.mark.parametrize("callback", REFUSED, ids=lambda one: type(one).__name__)
def test_a_callback_to_be_awaited_is_refused(callback: Any) -> None:
    with holdfast.connect("memory://") as locks, locks.lock("x") as lease:
        with pytest.raises(holdfast.ConfigError, match="on_lost"):
            lease.on_lost(callback)
        with pytest.raises(holdfast.ConfigError, match="on_event"):
            locks.on_event(callback)
        if callback is not None:
            with pytest.raises(holdfast.ConfigError, match="on_event"):
                holdfast.connect("memory://", on_event=callback)


@pytest.mark.parametrize("callback", REFUSED, ids=lambda one: type(one).__name__)
async def test_a_callback_to_be_awaited_is_refused_in_asyncio(callback: Any) -> None:
    async with holdfast.aio.connect("memory://") as locks, locks.lock("x") as lease:
        with pytest.raises(holdfast.ConfigError, match="on_lost"):
            lease.on_lost(callback)
        with pytest.raises(holdfast.ConfigError, match="on_event"):
            locks.on_event(callback)


def test_a_class_and_a_mock_are_plain_callbacks() -> None:
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x", max_hold=0.01).acquire()
        mock = MagicMock()
        lease.on_lost(mock)
        lease.on_lost(str)
        assert lease.wait_lost(20.0)
        mock.assert_called_once_with(lease)


async def test_a_coroutine_that_a_callback_returns_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    callback: Any = lambda *_: function(None)  # noqa: E731
    async with holdfast.aio.connect("memory://") as locks:
        lease = await locks.lock("x", max_hold=0.01).acquire()
        told = asyncio.Event()
        lease.on_lost(callback)
        lease.on_lost(lambda gone: told.set())
        await told.wait()
        assert "on_lost callback" in caplog.text
        assert "coroutine" in caplog.text
        caplog.clear()
        locks.on_event(callback)
        await locks.lock("y").acquire()
        assert "'acquired'" in caplog.text
        assert "coroutine" in caplog.text
