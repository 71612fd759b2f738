"""One service with tokens, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.security.served import Served, make_token, serve


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with two namespaces, and a token that nobody uses."""
    folder: Path = tmp_path_factory.mktemp("served")
    make_token(folder / "tokens.json")
    with serve(folder, namespaces=("holdfast", "billing"), failures_per_second=1e6) as running:
        yield running
