"""A browser for all tests of a module, and a service with an embedded store for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser
from service.running import Api, running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    with running(url, look_every=0.05) as (api, _):
        yield api
