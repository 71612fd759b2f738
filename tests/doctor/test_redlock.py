"""The doctor of Redlock, with each finding provoked on real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import holdfast
from doctor.look import look, until
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes, url_of
from holdfast.chaos.servers.stepped import SteppedServer


@pytest.fixture
def trio() -> Iterator[RedlockNodes]:
    nodes = RedlockNodes(3)
    try:
        yield nodes
    finally:
        nodes.stop()


def use(url: str) -> None:
    with holdfast.connect(url) as locks, locks.lock("x"):
        pass


def test_nodes_that_were_never_used_are_left_so(trio: RedlockNodes) -> None:
    found = look(trio.url)
    found.one("votes", "note", "not been used yet")
    found.one("reachable", "ok", "all 3 nodes")
    assert all(node("DBSIZE") == 0 for node in trio.nodes)


def test_nodes_that_vote(trio: RedlockNodes) -> None:
    use(trio.url)
    before = [node("KEYS", "*") for node in trio.nodes]
    found = look(trio.url)
    found.one("votes", "ok", "3 of 3 nodes vote")
    found.one("clock", "ok", "all 3 clocks")
    # They are on one machine here, which is the only thing to say against them.
    assert found.bad() == ["independence"]
    found.one("independence", "warning", "3 of 3 nodes are on one machine")
    assert [node("KEYS", "*") for node in trio.nodes] == before


def test_a_node_that_is_down_and_then_out(trio: RedlockNodes) -> None:
    use(trio.url)
    trio.nodes[0].kill()
    found = look(trio.url)
    assert "no other one may fail" in found.one("reachable", "warning").why
    found.one("votes", "ok", "2 of 3 nodes vote")
    trio.nodes[0].start()
    found = look(trio.url)
    out = found.one("votes", "warning", "no client has begun to bring it back")
    assert out.server == f"127.0.0.1:{trio.nodes[0].port}"
    with holdfast.connect(trio.url) as locks:
        locks.inspect("x")
        until(lambda: trio.nodes[0]("EXISTS", "holdfast:redlock:beginning"))
        found = look(trio.url)
        found.one("votes", "warning", "it may vote in ")
        found.one("votes", "ok", "2 of 3 nodes vote")


@pytest.mark.parametrize(
    ("option", "way"), [("", "the nodes come back 60 s after"), ("?majority_lost=stop", "'stop'")]
)
def test_a_majority_that_was_lost(trio: RedlockNodes, option: str, way: str) -> None:
    use(trio.url)
    for node in trio.nodes[:2]:
        node.kill()
    found = look(trio.url + option)
    assert found.levels("reachable") == ["wrong", "wrong"]
    found.one("majority", "wrong", "1 of 3 nodes vote")
    for node in trio.nodes[:2]:
        node.start()
    found = look(trio.url + option)
    assert way in found.one("majority", "wrong").mend
    assert found.levels("votes") == ["wrong", "wrong"]
    for node in trio.nodes:
        node.kill()
    with pytest.raises(holdfast.BackendUnavailable):
        look(trio.url)


def test_two_names_of_one_server(trio: RedlockNodes) -> None:
    first, second, _ = trio.nodes
    url = f"redlock://127.0.0.1:{first.port},localhost:{first.port},127.0.0.1:{second.port}"
    look(url).one("independence", "wrong", "are the same server")


def test_a_replica_among_the_nodes(trio: RedlockNodes) -> None:
    first, second, _ = trio.nodes
    second("REPLICAOF", "127.0.0.1", first.port)
    until(lambda: b"connected_slaves:1" in first("INFO", "replication"))
    found = look(trio.url)
    found.one("independence", "wrong", "it is a replica of")
    found.one("independence", "warning", "it has a replica")
    assert "read-only" in found.one("writes", "wrong").what
    assert not found.levels("scripts")


def test_a_node_that_is_out_of_memory(trio: RedlockNodes) -> None:
    use(trio.url)
    trio.nodes[1]("CONFIG", "SET", "maxmemory", "1")
    found = look(trio.url)
    wrong = found.one("writes", "wrong", "it is out of memory")
    assert wrong.server == f"127.0.0.1:{trio.nodes[1].port}"
    assert not found.levels("scripts")


@pytest.mark.parametrize(
    ("rule", "what"),
    [("-get", "read its keys"), ("-info", "INFO"), ("resetchannels", "listen on channels")],
)
def test_rights_without_which_no_client_is_served(trio: RedlockNodes, rule: str, what: str) -> None:
    use(trio.url)
    for node in trio.nodes:
        node("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", rule)
    found = look(trio.url.replace("redlock://", "redlock://poor:secret@"))
    assert found.levels("scripts") == ["wrong"] * 3
    assert what in str(found)
    assert "not been used yet" not in str(found)


def test_nodes_that_are_not_as_the_option_says(trio: RedlockNodes) -> None:
    durable = f"{trio.url}?appendfsync=always"
    assert look(durable).levels("persistence") == ["wrong"] * 3
    for node in trio.nodes:
        node("CONFIG", "SET", "appendonly", "yes")
        node("CONFIG", "SET", "appendfsync", "always")
    assert look(durable).levels("persistence") == ["ok"] * 3


def test_other_settings_than_the_nodes_have(trio: RedlockNodes) -> None:
    use(trio.url)
    assert look(f"{trio.url}?max_ttl=30").levels("members") == ["wrong"] * 3
    other = RedisServer()
    try:
        ports = [trio.nodes[0].port, trio.nodes[1].port, other.port]
        look(url_of(ports)).one("members", "wrong", "it was set up as one of")
    finally:
        other.stop()


def test_eviction_and_rights(trio: RedlockNodes) -> None:
    node = trio.nodes[1]
    node("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    node("CONFIG", "SET", "maxmemory", "1gb")
    found = look(trio.url).one("eviction", "wrong")
    assert found.server == f"127.0.0.1:{node.port}"
    for each in trio.nodes:
        each("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-@scripting")
    found_all = look(trio.url.replace("redlock://", "redlock://poor:secret@"))
    assert found_all.levels("scripts") == ["wrong"] * 3
    assert "secret" not in str(found_all)


def test_nodes_that_let_nobody_in(trio: RedlockNodes) -> None:
    url = trio.url.replace("redlock://", "redlock://stranger:wrong@")
    with pytest.raises(holdfast.ConfigError, match="does not let us in"):
        look(url)


def test_a_clock_that_is_ahead(trio: RedlockNodes) -> None:
    stepped = SteppedServer()
    try:
        stepped.step(45)
        ports = [stepped.port, trio.nodes[0].port, trio.nodes[1].port]
        found = look(url_of(ports)).one("clock", "warning", "ahead of ours")
        assert found.server == f"127.0.0.1:{stepped.port}"
    finally:
        stepped.stop()


def test_a_node_that_is_slow(trio: RedlockNodes) -> None:
    with closing(Proxy(trio.nodes[0].port)) as proxy:
        proxy.delay = 0.2
        ports = [proxy.port, trio.nodes[1].port, trio.nodes[2].port]
        found = look(url_of(ports), timeout=20.0)
        found.one("round-trip", "warning", "node_timeout is 250 ms")
