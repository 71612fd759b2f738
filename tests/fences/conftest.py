"""An empty site for each test, once for each kind of fence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fences.every import SITES
from fences.sites import Site


@pytest.fixture(params=sorted(SITES))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def site(kind: str, tmp_path: Path) -> Iterator[Site]:
    made = SITES[kind](tmp_path)
    yield made
    made.close()
