"""Runs `async def` tests, each in an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect

import pytest

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
