"""Runs `async def` tests, each in an event loop of its own; and the stores to run them on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from stores import STORES, UNFAIR

LIMIT = 60.0
"""Seconds one asynchronous test may take in all."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None  # pytest's own way
    names = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await test(**arguments)

    asyncio.run(limited(), debug=False)
    return True


@pytest.fixture(params=sorted(STORES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store, once for each kind that there is."""
    with STORES[request.param](tmp_path) as store_url:
        yield store_url


@pytest.fixture(params=sorted(set(STORES) - set(UNFAIR)))
def fair_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The same, for those that serve waiters in their order and hand the lock over."""
    with STORES[request.param](tmp_path) as store_url:
        yield store_url
