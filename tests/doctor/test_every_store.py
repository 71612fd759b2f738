"""Every store has a doctor, which finds a store that works to be fit, and leaves it as it is."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import holdfast
from doctor.look import Look, look
from holdfast.stores.urls import SCHEMES
from stores import STORES

TOLERATED = {"fsync", "file-system"}
"""The servers of the tests do not save their data, since nobody cuts their power."""


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_every_scheme_has_a_doctor(scheme: str) -> None:
    assert callable(import_module(SCHEMES[scheme].doctor).examine)


@pytest.mark.parametrize("url", sorted(STORES))
def test_a_store_that_works_is_fit(url: str, tmp_path: Path) -> None:
    with STORES[url](tmp_path) as place, holdfast.connect(place) as locks:
        with locks.lock("mine") as lease:
            found = Look(locks.doctor(timeout=60.0))
            lease.ensure()
            assert [state.name for state in locks.list()] == ["mine"]
        wrong = {one.check for one in found.findings if one.level == "wrong"}
        assert wrong <= TOLERATED, str(found)
        if not place.startswith("memory:"):
            again = look(place, timeout=60.0)
            assert [one.check for one in again.findings] == [one.check for one in found.findings]
