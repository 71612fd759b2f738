"""The failover drill on every store that several processes can use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from failover.drill import CUT_OFF, KILLED, PAUSED, TTL, drill
from stores import STORES

BETWEEN_PROCESSES = [store for store in STORES if store != "memory"]
OWN_ADDRESSES = ("redis+cluster", "redis+sentinel", "redlock")
"""Stores whose servers tell their own addresses, or know by which they are named: no proxy stands
before those of one client alone."""
REACHED_BY_NETWORK = [
    store for store in BETWEEN_PROCESSES if store not in ("sqlite", *OWN_ADDRESSES)
]
SLACK = 15.0
"""Seconds by which a busy machine may be late."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with STORES[request.param](tmp_path) as url:
        yield url


@pytest.mark.parametrize("url", BETWEEN_PROCESSES, indirect=True)
def test_a_leader_that_was_killed_is_replaced(url: str) -> None:
    outcome = drill(url, KILLED)
    assert outcome.rose
    assert outcome.gap < 3 * TTL + SLACK


@pytest.mark.parametrize("url", BETWEEN_PROCESSES, indirect=True)
def test_a_leader_that_was_paused_is_replaced_and_told(url: str) -> None:
    outcome = drill(url, PAUSED)
    assert outcome.rose
    assert outcome.told is not None  # as soon as it went on


@pytest.mark.parametrize("url", REACHED_BY_NETWORK, indirect=True)
def test_a_leader_that_was_cut_off_is_told_before_the_next_one_leads(url: str) -> None:
    outcome = drill(url, CUT_OFF)
    assert outcome.rose
    assert outcome.told is not None
    assert outcome.told > 0
