"""Lanes: which lock an owner id is in use for is not forgotten when all lanes are taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.service.lanes import MOST, Lanes


class Lane:
    """What lanes need of a store."""

    guarantees = SimpleNamespace(store="redis")

    def __init__(self) -> None:
        self.uses: dict[str, tuple[str, int]] = {}

    def name_of(self, owner: str) -> str | None:
        return self.uses[owner][0] if owner in self.uses else None


def test_a_request_without_a_lane_of_its_own_leaves_it_to_the_one_that_waits() -> None:
    first: Any = Lane()
    another: Any = Lane
    lanes = Lanes(first, another)
    waits, stores = [], []
    for number in range(MOST):
        use = lanes.use(f"lock {number}", "me", queue=True)
        stores.append(use.__enter__())
        waits.append(use)
    assert len(set(map(id, stores))) == MOST
    with pytest.raises(ConfigError):
        lanes.use("one too many", "me", queue=True)
    with lanes.use("one too many", "me") as store:  # it does not wait
        assert store is first
        assert first.name_of("me") == "lock 0"
    for number in range(MOST):
        with lanes.use(f"lock {number}", "me", queue=True) as store:
            assert store is stores[number]
    for use in waits:
        use.__exit__()
    assert [one.uses for one in lanes.stores] == [{}] * MOST
