"""The doctor of Redis, with each finding provoked on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis as redis_py

import holdfast
from doctor.look import look, until
from holdfast.chaos.servers.cluster import Cluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import NEEDED, RedisServer
from holdfast.chaos.servers.sentinel import NAME, Sentinel, Watch
from holdfast.chaos.servers.stepped import SteppedServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    try:
        yield server
    finally:
        server.stop()


def test_a_good_server_has_nothing_wrong_and_is_left_as_it_was(server: RedisServer) -> None:
    server("SET", "mine", "1")
    found = look(server.url)
    assert found.bad() == []
    checks = ["version", "eviction", "persistence", "replicas", "clock", "round-trip", "scripts"]
    assert [one.check for one in found.findings] == checks
    assert {one.level for one in found.findings} == {"ok"}
    assert server("KEYS", "*") == [b"mine"]


def test_eviction(server: RedisServer) -> None:
    server("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    found = look(server.url).one("eviction", "warning", "allkeys-lru")
    assert "CONFIG SET maxmemory-policy noeviction" in found.mend
    server("CONFIG", "SET", "maxmemory", "1gb")
    look(server.url).one("eviction", "wrong", "allkeys-lru")


def test_memory_that_is_nearly_full(server: RedisServer) -> None:
    used = int(server("INFO", "memory").partition(b"used_memory:")[2].split()[0])
    server("CONFIG", "SET", "maxmemory", used + used // 20)
    found = look(server.url)
    found.one("memory", "warning", "% full")
    server("CONFIG", "SET", "maxmemory", used // 2)
    found = look(server.url)
    assert "maxmemory" in found.one("scripts", "wrong", "out of memory").mend


def test_persistence(server: RedisServer) -> None:
    server("CONFIG", "SET", "appendfsync", "everysec")
    look(server.url).one("persistence", "note", "each second")
    server("CONFIG", "SET", "appendfsync", "no")
    look(server.url).one("persistence", "note", "when the system likes")
    server("CONFIG", "SET", "appendonly", "no")
    look(server.url).one("persistence", "warning", "does not save")
    server("CONFIG", "SET", "save", "3600 1")
    look(server.url).one("persistence", "warning", "in snapshots alone")


def test_a_snapshot_that_failed(server: RedisServer) -> None:
    (server.folder / "dump.rdb").mkdir()  # a file cannot be renamed to it
    server("SET", "mine", "1")
    server("BGSAVE")
    until(lambda: b"rdb_last_bgsave_status:err" in server("INFO", "persistence"))
    look(server.url).one("saving", "wrong", "the last snapshot failed")


def test_replicas_and_their_clocks(server: RedisServer) -> None:
    follow = ("--replicaof", "127.0.0.1", str(server.port), "--repl-diskless-sync-delay", "0")
    server("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    replica = SteppedServer(*follow)
    try:
        until(lambda: b"state=online" in server("INFO", "replication"))
        found = look(server.url)
        assert "min_replicas" in found.one("replicas", "note", "1 replica").mend
        found.one("replica-clock", "ok")
        assert look(f"{server.url}?min_replicas=1").levels("replicas") == ["ok"]
        look(f"{server.url}?min_replicas=2").one("replicas", "wrong", "asks for 2")
        replica.step(-40)
        late = look(server.url).one("replica-clock", "warning", "behind that of its primary")
        assert late.server == f"127.0.0.1:{replica.port}"
        # The replica itself is no place for locks.
        found = look(replica.url)
        found.one("replicas", "wrong", "it is a replica")
        found.one("clock", "warning", "behind ours")
        found.one("scripts", "wrong", "read-only replica")
    finally:
        replica.stop()


def test_a_user_who_may_not_run_scripts(server: RedisServer) -> None:
    server("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", *NEEDED, "-@scripting", "+info")
    url = f"redis://poor:secret@127.0.0.1:{server.port}"
    found = look(url)
    assert "+@scripting" in found.one("scripts", "wrong", "NOPERM").mend
    assert "secret" not in str(found)


def test_a_user_who_may_do_just_what_is_needed(server: RedisServer) -> None:
    server("ACL", "SETUSER", "app", "on", ">secret", "~app:*", "&app:*", *NEEDED)
    found = look(f"redis://app:secret@127.0.0.1:{server.port}", namespace="app")
    assert found.bad() == []
    found.one("version", "note", "may not run INFO")
    found.one("scripts", "ok")
    assert server("KEYS", "*") == []
    found = look(f"redis://app:secret@127.0.0.1:{server.port}", namespace="other")
    found.one("scripts", "wrong")


def test_a_user_who_may_not_see_settings(server: RedisServer) -> None:
    server("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", *NEEDED, "+info")
    found = look(f"redis://app:secret@127.0.0.1:{server.port}")
    found.one("persistence", "note", "CONFIG GET appendfsync is not allowed")


def test_a_clock_that_is_ahead() -> None:
    server = SteppedServer()
    try:
        server.step(60)
        found = look(server.url).one("clock", "warning", "ahead of ours")
        assert "NTP" in found.mend
    finally:
        server.stop()


def test_a_server_that_is_far_away(server: RedisServer) -> None:
    with closing(Proxy(server.port)) as proxy:
        proxy.delay = 0.7
        url = f"redis://127.0.0.1:{proxy.port}"
        found = look(url, timeout=60.0)
        assert "use TTLs of " in found.one("round-trip", "warning", "a round trip took").mend
        found.one("clock", "ok")


def test_a_server_that_is_gone_or_shut(server: RedisServer) -> None:
    with pytest.raises(holdfast.ConfigError, match="does not let us in"):
        look(f"redis://nobody:wrong@127.0.0.1:{server.port}")
    server.pause()
    try:
        with pytest.raises(holdfast.BackendUnavailable) as silent:
            look(server.url, timeout=0.3)
    finally:
        server.resume()
    server.kill()
    with pytest.raises(holdfast.BackendUnavailable) as gone:
        look(server.url)
    assert type(silent.value) is type(gone.value) is holdfast.BackendUnavailable


def test_a_client_in_place_of_a_url(server: RedisServer) -> None:
    with redis_py.Redis(port=server.port) as client:
        assert look(client).bad() == []
        with holdfast.connect(client) as locks:
            assert {one.level for one in locks.doctor()} == {"ok"}


def test_sentinels() -> None:
    watch = Watch().calm()
    try:
        found = look(watch.url)
        found.one("sentinels", "ok", "3 sentinels agree")
        found.one("replicas", "note", "1 replica")
        found.one("scripts", "ok")
        assert found.levels("replica-clock") == ["ok"]
        assert watch.primary("DBSIZE") == 0
        watch.sentinels[0]("SENTINEL", "SET", NAME, "quorum", 1)
        only = f"redis+sentinel://127.0.0.1:{watch.sentinels[0].port}/{NAME}"
        look(only).one("sentinels", "warning", "1 of them may call it down")
        watch.sentinels[1].kill()
        gone = look(watch.url).one("sentinels", "warning", "does not answer")
        assert gone.server == f"127.0.0.1:{watch.sentinels[1].port}"
        watch.replica.kill()
        watch.await_(lambda: b"connected_slaves:0" in watch.primary("INFO", "replication"))
        look(watch.url).one("replicas", "warning", "no replica")
    finally:
        watch.stop()


def test_sentinels_that_disagree(server: RedisServer) -> None:
    other = RedisServer()
    sentinels = [Sentinel(server.port), Sentinel(other.port)]
    try:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in sentinels)
        found = look(f"redis+sentinel://{hosts}/{NAME}")
        found.one("sentinels", "warning", "do not agree")
    finally:
        for one in (*sentinels, other):
            one.stop()


def test_a_cluster() -> None:
    cluster = Cluster()
    try:
        found = look(cluster.url)
        found.one("slots", "ok", "all 16,384 slots")
        found.one("scripts", "ok")
        assert len(found.levels("version")) == 3
        assert found.levels("replicas").count("warning") == 2  # one of the three has a replica
        found.one("clock", "ok", "all 3 clocks")
        assert all(node("DBSIZE") == 0 for node in cluster.nodes)
        cluster.primaries[1]("CLUSTER", "DELSLOTS", 6000)
        url = f"redis+cluster://127.0.0.1:{cluster.primaries[1].port}"
        look(url).one("slots", "wrong", "1 belong to no server")
        cluster.primaries[2].kill()
        look(url, timeout=20.0).one("reachable", "wrong", "cannot be used")
    finally:
        cluster.stop()
