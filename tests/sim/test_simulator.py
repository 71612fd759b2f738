"""The simulator itself: a seed gives the same run each time, and bad variants are caught."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module

import pytest

from holdfast.sim.__main__ import BACKENDS

MISTAKES = [
    (backend, name)
    for backend in BACKENDS
    for name, variant in import_module(f"holdfast.sim.{backend}.plan").VARIANTS.items()
    if not variant.calm
]
"""The variants that are known to be bad, but for those of calm runs."""

FIRST_SEEDS = {("zookeeper", "proof-by-reading"): "5100"}
"""Where to begin with variants that only few seeds catch: 1 of 250, and none of the first 600."""


ALLOCATORS = ("pymalloc", "malloc")
"""Ways to lay out memory, by which the order of a set of objects differs."""


def simulate(*arguments: str, allocator: str = "pymalloc") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.sim", *arguments],
        env={**os.environ, "PYTHONMALLOC": allocator},
        capture_output=True,
        text=True,
        timeout=500,  # only so that it ends at all: other work beside it makes it ten times slower
        check=False,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_gives_one_trace(backend: str) -> None:
    traces: list[str] = []
    for seed in ("7", "11"):
        once, again = (
            simulate("--backend", backend, "--seed", seed, allocator=one) for one in ALLOCATORS
        )
        assert once.returncode == 0, once.stdout + once.stderr
        assert once.stdout == again.stdout
        traces.append(once.stdout)
    assert any("holds 'x' as" in trace for trace in traces)


@pytest.mark.parametrize(
    ("backend", "seeds"), [("redis", 100), ("redlock", 100), ("etcd", 30), ("zookeeper", 30)]
)
def test_a_store_holds(backend: str, seeds: int) -> None:
    """Runs a few seeds; CI runs hundreds or thousands, by `make sim`."""
    done = simulate("--backend", backend, "--seeds", str(seeds), "--variant", "none")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    assert f"{seeds} runs" in done.stdout
    assert "0 runs failed" in done.stdout


@pytest.mark.parametrize(("backend", "variant"), MISTAKES)
def test_a_known_mistake_is_caught(backend: str, variant: str) -> None:
    first = FIRST_SEEDS.get((backend, variant), "1")
    done = simulate("--backend", backend, "--variant", variant, "--first", first)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    assert "known to be bad, caught by seed" in done.stdout


def test_the_runs_can_be_shared_by_processes_and_had_without_the_variants() -> None:
    done = simulate("--backend", "redis", "--seeds", "20", "--jobs", "2", "--variant", "none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 runs" in done.stdout
    assert "known to be bad" not in done.stdout


def test_a_run_that_fails_prints_its_trace_and_its_seed() -> None:
    found = simulate("--backend", "redis", "--variant", "heedless")
    seed = re.search(r"caught by seed (\d+)", found.stdout)
    assert seed, found.stdout + found.stderr
    done = simulate("--backend", "redis", "--variant", "heedless", "--seed", seed[1])
    assert done.returncode == 1
    assert "CHECKER" in done.stdout
    assert "write was accepted after" in done.stdout
    assert f"seed {seed[1]}: " in done.stdout


@pytest.mark.parametrize(
    ("backend", "bad"), [("redis", 1), ("redlock", 2), ("etcd", 1), ("zookeeper", 1)]
)
def test_in_calm_nothing_is_late_lost_or_left_behind(backend: str, bad: int) -> None:
    """Runs a few seeds of each store; CI runs hundreds, by `make sim`."""
    done = simulate("--backend", backend, "--calm", "--seeds", "10")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    assert "10 calm runs" in done.stdout
    assert done.stdout.count("known to be bad, caught by seed") == bad
    once, again = (
        simulate("--backend", backend, "--calm", "--seed", "5", allocator=one).stdout
        for one in ALLOCATORS
    )
    assert "all have given back what they had" in once
    assert once == again


def test_a_waiter_is_told_of_a_change_while_it_joins() -> None:
    """Runs a seed that found a waiter which was not woken until its heartbeat.

    The watch of another attempt told of its neighbour's change while the waiter read its neighbour.
    """
    done = simulate("--backend", "zookeeper", "--calm", "--seed", "1794896941738")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    assert "0 violations" in done.stdout
