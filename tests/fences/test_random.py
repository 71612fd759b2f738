"""Random holders in several processes, stale and not, with readers, prunes and sudden deaths.

No write passes that is older than a writer or a reader who passed before it began; no value changes
under a reader who holds; and nobody who holds, and goes on working, is refused.

A longer run: HOLDFAST_RANDOM_SECONDS=300 HOLDFAST_RANDOM_SEED=7.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.every import RANDOM_SITES
from fences.object_sites import ObjectSite
from fences.random_client import LOCKS, READ, RESOURCES, GrantedLease
from fences.redis_sites import RedisSite
from fences.sites import Site
from fences.sql_sites import MariaSite, PostgresSite
from stores import mariadb_server, postgres_server, redis_server

SECONDS = float(os.environ.get("HOLDFAST_RANDOM_SECONDS", "6"))
SEED = int(os.environ.get("HOLDFAST_RANDOM_SEED", "1"))
PROCESSES = 4
ENOUGH = 50
"""Calls that have to pass before anything is proved."""
KINDS = ["azure", "file", "gcs", "mariadb", "postgres", "redis", "s3-stamped", "sqlite", "workers"]


@pytest.mark.parametrize("kind", KINDS)
def test_random_holders(kind: str, tmp_path: Path) -> None:
    site = RANDOM_SITES[kind](tmp_path)
    for resource, lock in every_resource():
        if lock in READ:
            site.write(resource, "1 0 0", GrantedLease(lock, 1, reader=False))
    try:
        deaths = run(kind, site, tmp_path)
        entries = [json.loads(line) for line in read_logs(tmp_path)]
        told = check(entries)
        assert told["ok"] > ENOUGH, told
        look_at_the_end(site, entries)
    finally:
        site.close()
    print(kind, told, f"deaths: {deaths}")


def every_resource() -> list[tuple[str, int]]:
    return [(f"r{lock}-{n}", lock) for lock in range(LOCKS) for n in range(RESOURCES[lock])]


def run(kind: str, site: Site, folder: Path) -> int:
    setting: dict[str, Any] = {}
    if isinstance(site, PostgresSite):
        setting["postgres"] = postgres_server().port
    elif isinstance(site, MariaSite):
        setting["mariadb"] = mariadb_server().port
    elif isinstance(site, RedisSite):
        setting["redis"] = redis_server().port
    elif isinstance(site, ObjectSite):
        setting["store"] = site.store
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    until = time.monotonic() + SECONDS
    latest = until + 90
    number = deaths = 0
    living: list[subprocess.Popen[bytes]] = []
    try:
        while time.monotonic() < until or living:
            if until <= time.monotonic() < latest and passed(folder) <= ENOUGH:
                until = time.monotonic() + 2  # a busy machine
            while len(living) < PROCESSES and time.monotonic() < until:
                number += 1
                words = (kind, folder, f"{SEED}.{number}", max(0.5, until - time.monotonic()))
                process = subprocess.Popen(
                    [sys.executable, "-m", "fences.random_client", *map(str, words)],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                living.append(process)
                assert process.stdin is not None
                process.stdin.write(pickle.dumps(setting))
                process.stdin.close()
                process.stdin = None
            for process in [one for one in living if one.poll() is not None]:
                living.remove(process)
                _, said = process.communicate()
                assert process.returncode in (0, -9), said.decode()
                deaths += process.returncode == -9
            time.sleep(0.02)
            assert time.monotonic() < until + 60, "a client does not end"
    finally:
        for process in living:
            process.kill()
            process.communicate()
    return deaths


def read_logs(folder: Path) -> list[bytes]:
    return [line for path in folder.glob("log-*") for line in path.read_bytes().splitlines()]


def passed(folder: Path) -> int:
    return sum(b'"ok"' in line and b'"token"' in line for line in read_logs(folder))


def check(entries: list[dict[str, Any]]) -> dict[str, int]:
    told: dict[str, int] = {}
    for entry in entries:
        outcome = entry["outcome"] if entry["resource"] else f"prune {entry['outcome']}"
        told[outcome] = told.get(outcome, 0) + 1
        assert outcome != "changed", f"a value changed under a reader who holds: {entry}"
        assert not (outcome == "stale" and entry["must"]), f"a holder was refused: {entry}"
    passed = [one for one in entries if one["outcome"] == "ok" and one["resource"]]
    for resource, _ in every_resource():
        # By the end of each: what was the highest so far?
        here = sorted((one for one in passed if one["resource"] == resource), key=ended_at)
        ends = [one["ended"] for one in here]
        for kinds, judged in (
            ((True, False), [one for one in here if not one["reader"]]),
            ((False,), [one for one in here if one["reader"]]),
        ):
            highest: list[int] = []
            for one in here:
                before = highest[-1] if highest else 0
                highest.append(max(before, one["token"] if one["reader"] in kinds else 0))
            for one in judged:
                earlier = sum(end < one["began"] for end in ends)
                assert not earlier or highest[earlier - 1] <= one["token"], (
                    f"passed after {highest[earlier - 1]}: {one}"
                )
    return told


def ended_at(entry: dict[str, Any]) -> float:
    ended: float = entry["ended"]
    return ended


def look_at_the_end(site: Site, entries: list[dict[str, Any]]) -> None:
    for resource, lock in every_resource():
        written = [
            one["token"]
            for one in entries
            if one["resource"] == resource and one["outcome"] == "ok" and not one["reader"]
        ]
        if not written:
            continue
        value = site.read(resource)
        assert value is not None
        # Of a process that died in its call nobody knows whether it has written.
        assert int(value.split()[0]) >= max(written)
        with pytest.raises(holdfast.StaleToken):
            site.write(resource, "late", GrantedLease(lock, max(written) - 1, reader=False))
