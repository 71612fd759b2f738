"""The history of processes that contend under faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from histories import check_history
from holdfast.chaos.servers.mariadb import MariaServer


@pytest.mark.parametrize("seed", [1, 2])
def test_the_history_of_contenders_under_faults(tmp_path: Path, seed: int) -> None:
    check_history(MariaServer(), tmp_path, seed)
