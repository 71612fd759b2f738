"""A PostgreSQL of its own for each test that hurts it; one that is kept for the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.chaos.servers.postgres import PostgresServer
from stores import postgres_server


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Yields a server that may be killed."""
    made = PostgresServer("deadlock_timeout=200ms")
    yield made
    made.stop()


@pytest.fixture
def kept() -> PostgresServer:
    """Returns the server of the whole run, which nobody hurts."""
    return postgres_server()
