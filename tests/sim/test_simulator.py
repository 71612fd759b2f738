"""The simulator itself: a seed gives the same run each time, and bad variants are caught."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.sim", *arguments],
        capture_output=True,
        text=True,
        timeout=1000,  # only so that it ends at all: other work beside it makes it ten times slower
        check=False,
    )


def test_a_seed_gives_one_trace() -> None:
    for seed in ("3", "8"):
        once = simulate("--backend", "redis", "--seed", seed)
        again = simulate("--backend", "redis", "--seed", seed)
        assert once.returncode == 0, once.stdout + once.stderr
        assert "holds 'x' as" in once.stdout
        assert once.stdout == again.stdout


def test_a_single_redis_holds_and_a_plain_lock_is_caught() -> None:
    done = simulate("--backend", "redis", "--seeds", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 runs" in done.stdout
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


def test_redlock_holds_and_every_known_mistake_is_caught() -> None:
    """Runs a hundred seeds, and the variants; CI runs thousands of seeds, by `make sim`."""
    done = simulate("--backend", "redlock", "--seeds", "100")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    assert "100 runs" in done.stdout
    assert "0 runs failed" in done.stdout
    assert done.stdout.count("known to be bad, caught by seed") == 12


def test_a_redlock_trace_is_the_same_each_time() -> None:
    once = simulate("--backend", "redlock", "--seed", "11")
    again = simulate("--backend", "redlock", "--seed", "11")
    assert once.returncode == 0, once.stdout + once.stderr
    assert once.stdout == again.stdout


def test_zookeeper_holds_and_its_bad_variants_are_caught() -> None:
    done = simulate("--backend", "zookeeper", "--seeds", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 runs" in done.stdout
    assert done.stdout.count("known to be bad, caught by seed") == 4
    once, again = (simulate("--backend", "zookeeper", "--seed", "7").stdout for _ in range(2))
    assert "holds 'x' as" in once
    assert once == again


@pytest.mark.parametrize(
    ("backend", "bad"), [("redis", 1), ("redlock", 2), ("etcd", 1), ("zookeeper", 1)]
)
def test_in_calm_nothing_is_late_lost_or_left_behind(backend: str, bad: int) -> None:
    """Runs a few seeds of each store; CI runs hundreds, by `make sim`."""
    done = simulate("--backend", backend, "--calm", "--seeds", "10")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    assert "10 calm runs" in done.stdout
    assert done.stdout.count("known to be bad, caught by seed") == bad
    once, again = (simulate("--backend", backend, "--calm", "--seed", "5").stdout for _ in "12")
    assert "all have given back what they had" in once
    assert once == again
