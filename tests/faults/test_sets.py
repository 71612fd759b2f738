"""Overlapping sets of locks, taken by many processes at once: all are served, and nobody starves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast
from faults import checker
from faults.actors import run
from stores import STORES

PROCESSES = 50
TURNS = int(os.environ.get("HOLDFAST_TURNS", "20"))
SEED = int(os.environ.get("HOLDFAST_SEED", "17"))


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_thousand_sets_of_fifty_processes(store: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/log"
    open(path, "x").close()
    with STORES[store](tmp_path) as url:
        said = run("sets", url, path, str(PROCESSES), str(TURNS), str(SEED), limit=150.0)
        waits = [float(line) for line in said.split()]
        assert len(waits) == PROCESSES
        events = checker.read(path)
        assert checker.check(events) == []
        wanted = sum(event.kind == "want" for event in events)
        assert wanted == PROCESSES * TURNS
        with holdfast.connect(url) as locks:
            assert not locks.list()
