"""Three nodes for tests that stop or restart them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.chaos.servers.redlock import RedlockNodes


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    made = RedlockNodes(3, "--appendonly", "no")
    try:
        yield made
    finally:
        made.stop()
