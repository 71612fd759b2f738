"""Faults, promises and tiers; and a lab on a store that the user has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from chaos.workers import ProbeWorker, chance
from holdfast.chaos import tiers
from holdfast.chaos.faults import FAULTS, SEEDS
from holdfast.chaos.labs import LABS, lab_class, own_lab
from holdfast.chaos.labs.own import Way, take_apart
from holdfast.chaos.promises import WEAKNESSES, promised
from holdfast.chaos.servers.errors import ServerError
from holdfast.chaos.servers.redis import RedisServer
from holdfast.guarantees import Guarantees
from holdfast.stores.etcd.guarantees import ETCD
from holdfast.stores.mysql.guarantees import MYSQL
from holdfast.stores.postgres.guarantees import POSTGRES
from holdfast.stores.redis.guarantees import REDIS, REDIS_CLUSTER, REDIS_SENTINEL
from holdfast.stores.redlock.guarantees import REDLOCK
from holdfast.stores.sqlite.guarantees import SQLITE
from holdfast.stores.zookeeper.guarantees import ZOOKEEPER

ALL = (SQLITE, REDIS, REDIS_SENTINEL, REDIS_CLUSTER, REDLOCK, ETCD, ZOOKEEPER, POSTGRES, MYSQL)

REPORTED = {
    "sqlite": {"amnesia"},
    "redis": {"amnesia", "failover", "clock"},
    "redis+sentinel": {
        "amnesia",
        "failover",
        "clock",
        "partition",
        "cut",
        "store-crash",
        "store-pause",
    },
    "redis+cluster": {
        "amnesia",
        "failover",
        "clock",
        "partition",
        "cut",
        "store-crash",
        "store-pause",
    },
    "redlock": {"clock"},
    "etcd": {"store-pause", "slow-disk"},
    "zookeeper": set(),
    "postgresql": {"amnesia", "failover", "clock"},
    "mysql": {"amnesia", "failover", "clock"},
}
"""The faults under which a store does not promise exclusion."""

TWO_PRIMARIES = {"failover", "partition", "cut", "store-crash", "store-pause"}
"""Those under which two primaries may grant at once, each by its own clock."""


@pytest.mark.parametrize("guarantees", ALL, ids=lambda one: one.store)
def test_what_is_promised_under_a_fault(guarantees: Guarantees) -> None:
    reported = {fault for fault in FAULTS if not promised(guarantees, fault).exclusion}
    assert reported == REPORTED[guarantees.store]
    for fault in FAULTS:
        promise = promised(guarantees, fault)
        two = guarantees in (REDIS_SENTINEL, REDIS_CLUSTER) and fault in TWO_PRIMARIES
        assert promise.tokens is not two, (
            "all others declare that tokens rise under one fault alone"
        )
        assert bool(promise.declared) == (not promise.exclusion)


def test_the_share_of_ports_is_given_back_at_the_end() -> None:
    """A socket that is left to the garbage collector is warned of."""
    program = "from holdfast.chaos.servers.ports import free_port; free_port()"
    command = [sys.executable, "-X", "dev", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""


def test_a_weakness_that_is_no_longer_declared_is_promised() -> None:
    silent = REDIS._replace(consistency="one server", clock_dependence="none")
    assert promised(silent, "clock") == (True, True, "")
    assert promised(silent, "failover") == (True, True, "")
    assert "ends leases early or late" in promised(REDIS, "clock").declared


def test_every_weakness_is_in_the_words_of_a_store() -> None:
    for weakness in WEAKNESSES:
        texts = [getattr(guarantees, weakness.field) for guarantees in ALL]
        assert any(weakness.words in text for text in texts), weakness
        assert set(weakness.faults) <= set(FAULTS)


def test_faults_have_names_and_labs_that_can_do_them() -> None:
    assert set(SEEDS) <= set(FAULTS)
    possible = {fault for name in LABS for fault in lab_class(name).possible}
    assert possible == set(FAULTS)
    assert all(lab_class(name).name == name for name in LABS)


def test_tiers_are_found_out_by_trying() -> None:
    found = tiers.tiers()
    names = ["clients", "stores", "namespaces", "strace", "clock", "vdso"]
    assert [tier.name for tier in found] == names
    *anywhere, vdso = found
    assert all(tier.available for tier in anywhere), found
    assert vdso.available or vdso.why  # it hangs on the processor, and on the kernel
    assert set(tiers.stores()) == set(LABS)
    assert set(tiers.stores().values()) == {None}


def test_a_tier_that_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for known in (tiers.tier, tiers.stores):
        known.cache_clear()
    (tmp_path / "sleep").symlink_to(str(shutil.which("sleep")))
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        assert tiers.tier("strace")[1:] == (
            False,
            "strace is not installed: apt-get install strace",
        )
        why = tiers.stores()["redis"]
        assert why == "redis-server missing: apt-get install redis-server"
        assert "; not redis, redis+sentinel, " in tiers.tier("stores").why
        with pytest.raises(ServerError, match="apt-get install redis-server"):
            RedisServer()
    finally:
        monkeypatch.undo()
        for known in (tiers.tier, tiers.stores):
            known.cache_clear()


@pytest.mark.parametrize(
    ("url", "way"),
    [
        ("redis://h/0", Way("redis://", (("h", 6379),), "/0")),
        ("redis://u:p@h:1/0?db=2", Way("redis://u:p@", (("h", 1),), "/0?db=2")),
        ("etcd://a:1,[::1]:2", Way("etcd://", (("a", 1), ("::1", 2)), "")),
        ("zookeeper://a,b:5/c", Way("zookeeper://", (("a", 2181), ("b", 5)), "/c")),
        ("mariadb://u@h/app", Way("mariadb://u@", (("h", 3306),), "/app")),
    ],
)
def test_a_url_is_taken_apart(url: str, way: Way) -> None:
    assert take_apart(url) == way
    assert way.through(["h:7", "h:8"][: len(way.hosts)]).startswith(f"{way.before}h:7")


@pytest.mark.parametrize(
    "url",
    [
        "rediss://h",
        "redlock://a,b,c",
        "redis+sentinel://a/x",
        "postgresql:///app",
        "etcd://h?tls=1",
    ],
)
def test_no_proxy_can_stand_before_some(url: str) -> None:
    assert isinstance(take_apart(url), str)


def test_a_store_of_the_user() -> None:
    server = RedisServer()
    server("SET", "theirs", "1")
    with own_lab(server.url) as lab:
        assert lab.faults == (
            "pause",
            "holder-crash",
            "partition",
            "delay",
            "lost-reply",
            "reset",
            "kill-at-call",
        )
        assert lab.guarantees == REDIS
        for fault in ("store-crash", "amnesia", "clock"):
            assert "for others, too" in str(lab.why_not(fault))
        worker = ProbeWorker(lab, "w1")
        worker.turn()
        injury = lab.apply("partition", chance(worker))
        worker.tell("take")
        assert worker.silent
        injury.heal()
        worker.hear()
        worker.ask("give")
        assert lab.ghosts("lab") == []
        worker.end()
    assert server("GET", "theirs") == b"1"
    keys = server("KEYS", "*")
    assert all(key == b"theirs" or key.startswith(b"lab:") for key in keys)
    server.stop()


def test_a_store_of_one_process_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="one process"):
        own_lab("memory://")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_service_which_has_no_namespace_for_a_run_is_refused(scheme: str) -> None:
    with pytest.raises(holdfast.ConfigError, match="name the store behind it"):
        own_lab(f"{scheme}://127.0.0.1:1")
