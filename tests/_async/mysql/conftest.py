"""A MariaDB of its own for each test that hurts it; one that is kept for the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.chaos.servers.mariadb import MariaServer
from stores import mariadb_server


@pytest.fixture
def server() -> Iterator[MariaServer]:
    """Yields a server that may be killed."""
    made = MariaServer()
    yield made
    made.stop()


@pytest.fixture
def kept() -> MariaServer:
    """Returns the server of the whole run, which nobody hurts."""
    return mariadb_server()
