from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    try:
        yield stage
    finally:
        stage.close()
