"""An application that is alive, its client, and its store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx

from holdfast import aio
from holdfast.aio import Locks
from holdfast.contrib.fastapi import connected

from .programs import LIMIT

numbers = count()


def new_url() -> str:
    """Returns the URL of an empty store."""
    return f"memory://fastapi-{next(numbers)}"


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Locks]]:
    """Yields a client of the application, which is alive, and a manager of the same store."""
    url = new_url()
    transport = httpx.ASGITransport(app)
    async with (
        aio.connect(url) as locks,
        connected(app, url),
        httpx.AsyncClient(transport=transport, base_url="http://test", timeout=LIMIT) as client,
    ):
        yield client, locks
