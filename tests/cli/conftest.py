from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stage import Stage
from stores import STORES, UNFAIR


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture(params=sorted(set(STORES) - {"memory"}))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yields the URL of an empty store, once for each kind that other processes can see."""
    with STORES[request.param](tmp_path) as found:
        yield found


@pytest.fixture(params=sorted({*STORES} - {"memory", *UNFAIR}))
def fair_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yields the URL of an empty store, for each of those that serves waiters in their order."""
    with STORES[request.param](tmp_path) as found:
        yield found
