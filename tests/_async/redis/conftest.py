"""Servers of their own for tests that restart or upset them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.chaos.servers.redis import RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    made = RedisServer()
    yield made
    made.stop()


@pytest.fixture
def durable() -> Iterator[RedisServer]:
    """A server that forgets nothing with a restart."""
    made = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    yield made
    made.stop()
