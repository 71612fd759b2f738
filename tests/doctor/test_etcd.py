"""The doctor of etcd, with each finding provoked on a real cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

import holdfast
from doctor.look import look, until
from holdfast.chaos.servers.errors import ServerError
from holdfast.chaos.servers.etcd import EtcdCluster, Member, trio
from holdfast.findings import Findings
from holdfast.stores.etcd.doctor import Status, _judge_versions


@pytest.fixture
def single() -> Iterator[EtcdCluster]:
    cluster = EtcdCluster()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def three() -> Iterator[EtcdCluster]:
    cluster = trio()
    cluster.heal()
    yield cluster
    cluster.heal()


def keys(cluster: EtcdCluster) -> list[str]:
    return cluster.ctl("get", "", "--prefix", "--keys-only").split()


def test_a_good_cluster_is_left_as_it_was(three: EtcdCluster) -> None:
    three.wipe()
    three.ctl("put", "mine", "1")
    found = look(three.url)
    found.one("members", "ok", "3 members, of which 1 may fail")
    found.one("quorum", "ok", "a majority answers")
    found.one("clock", "ok", "all 3 clocks")
    found.one("steps", "ok")
    found.one("round-trip", "ok")
    assert keys(three) == ["mine"]
    assert "found 0 leases" in three.ctl("lease", "list")


def test_the_version_with_the_known_fault(single: EtcdCluster) -> None:
    text = single.ctl("version").partition("version: ")[2].split()[0]
    version = tuple(map(int, text.split(".")))
    faulty = version < (3, 4, 31) or (3, 5) <= version < (3, 5, 13)
    found = look(single.url)
    assert found.levels("version") == ["warning" if faulty else "ok"]
    assert ("etcd#15247" in str(found)) == faulty


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("3.3.25", "warning"),
        ("3.4.30", "warning"),
        ("3.4.31", "ok"),
        ("3.5.0-rc.1", "warning"),
        ("3.5.12", "warning"),
        ("3.5.13", "ok"),
        ("3.6.0", "ok"),
        ("4.0.1", "ok"),
    ],
)
def test_versions_that_are_not_here(version: str, level: str) -> None:
    findings = Findings()
    _judge_versions(findings, [Status("h:1", 1, 1, version, 1, False)])
    assert [one.level for one in findings] == [level]


def test_one_member_and_no_users(single: EtcdCluster) -> None:
    found = look(single.url)
    found.one("members", "note", "one member")
    found.one("users", "note", "anybody")


def test_users(single: EtcdCluster) -> None:
    single.ctl("user", "add", "root:top")
    single.ctl("user", "grant-role", "root", "root")
    single.ctl("user", "add", "app:secret")
    single.ctl("role", "add", "app")
    single.ctl("user", "grant-role", "app", "app")
    single.ctl("auth", "enable")
    where = single.url.removeprefix("etcd://")
    with pytest.raises(holdfast.ConfigError, match="does not let us in"):
        look(f"etcd://app:wrong@{where}")
    found = look(f"etcd://app:secret@{where}")
    found.one("users", "ok")
    assert "grant-permission" in found.one("steps", "wrong").mend
    assert "secret" not in str(found)
    single.ctl_options = ["--user", "root:top"]
    single.ctl("role", "grant-permission", "app", "--prefix=true", "readwrite", "/holdfast/")
    found = look(f"etcd://app:secret@{where}")
    found.one("steps", "ok")
    assert keys(single) == []


def test_a_member_that_is_down_and_then_a_second(three: EtcdCluster) -> None:
    three.members[0].kill()
    found = look(three.url)
    gone = found.one("reachable", "warning")
    assert gone.server == f"127.0.0.1:{three.members[0].port}"
    found.one("steps", "ok")
    three.members[1].kill()

    def leaderless() -> bool:
        return "wrong" in look(three.url, timeout=4.0).levels("quorum")

    until(leaderless)
    three.members[2].kill()
    with pytest.raises(holdfast.BackendUnavailable):
        look(three.url)


def test_not_all_members_are_named(three: EtcdCluster) -> None:
    port = three.members[0].port
    look(f"etcd://127.0.0.1:{port}").one("members", "note", "names 1 of 3")


def test_members_of_two_clusters(single: EtcdCluster, three: EtcdCluster) -> None:
    url = f"{single.url},127.0.0.1:{three.members[0].port}"
    look(url).one("members", "wrong", "different clusters")


def test_an_alarm(single: EtcdCluster) -> None:
    small = EtcdCluster(options=["--quota-backend-bytes", "65536"])
    try:
        with suppress(ServerError):
            for number in range(100):
                small.ctl("put", f"key{number}", "x" * 50_000)
        found = look(small.url)
        assert "disarm" in found.one("alarm", "wrong", "NOSPACE").mend
        found.one("steps", "wrong")
    finally:
        small.stop()


def test_an_even_number_of_members() -> None:
    pair = EtcdCluster(2)
    try:
        look(pair.url).one("members", "note", "2 members")
    finally:
        pair.stop()


def test_a_learner() -> None:
    single = EtcdCluster(hasty=False)
    learner = Member("learner", ["--initial-cluster-state", "existing"])
    learner.peers = f"{single.members[0].peers},learner={learner.peer_url}"
    url = f"{single.url},127.0.0.1:{learner.port}"

    def learns() -> bool:
        assert learner.process is not None
        if learner.process.poll() is not None:
            # Between our look and its start somebody else's connection may have that port.
            assert "address already in use" in learner.log(), learner.log()
            learner.start()
        return "is a learner" in str(look(url))

    try:
        single.ctl("member", "add", "learner", "--learner", f"--peer-urls={learner.peer_url}")
        learner.start()
        until(learns, lambda: f"{learner.log()}\n{look(url)}")
        look(url).one("members", "warning", "is a learner")
    finally:
        learner.stop()
        single.stop()


def test_a_clock_that_differs(single: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is the one that is set: no server written in Go can be given another."""
    real = time.time
    monkeypatch.setattr("holdfast.stores.measures.time.time", lambda: real() - 60)
    look(single.url).one("clock", "warning", "ahead of ours")
