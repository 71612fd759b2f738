"""A stage for each test: a store in a folder of its own, and the actors on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import actors


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[actors.Stage]:
    with actors.stage(str(tmp_path)) as made:
        yield made


@pytest.fixture(params=actors.WORLDS)
def world(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
