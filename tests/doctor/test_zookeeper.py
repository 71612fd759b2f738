"""The doctor of ZooKeeper, with each finding provoked on a real ensemble."""

from __future__ import annotations

import select
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import holdfast
from doctor.look import look, until
from holdfast.chaos.servers.zookeeper import TICK, ZooKeeperEnsemble
from worlds.threads import eventually

ALONE = (("127.0.0.1", ()),)


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    ensemble = ZooKeeperEnsemble()
    try:
        yield ensemble
    finally:
        ensemble.stop()


def test_a_good_ensemble_is_left_as_it_was(ensemble: ZooKeeperEnsemble) -> None:
    before = znodes(ensemble)
    found = look(f"{ensemble.url}?tick={TICK}")
    assert {one.level for one in found.findings} == {"ok"}, str(found)
    checks = ["version", "ensemble", "tick", "session", "writes", "clock", "round-trip"]
    assert [one.check for one in found.findings] == checks
    found.one("ensemble", "ok", "3 of 3 servers vote, with one leader; 1 may fail")
    eventually(lambda: znodes(ensemble) == before)  # a server follows later
    look(f"{ensemble.url}/not/there?tick={TICK}").one("writes", "ok")
    eventually(lambda: znodes(ensemble) == before)


def znodes(ensemble: ZooKeeperEnsemble) -> str:
    """Returns the lines of how many znodes there are, ephemeral ones and others."""
    lines = ensemble.nodes[0].ask("mntr").splitlines()
    return "\n".join(line for line in lines if "znode_count" in line or "ephemerals" in line)


def test_the_tick(ensemble: ZooKeeperEnsemble) -> None:
    look(ensemble.url).one("tick", "note", "tickTime is 0.5 s, and the option tick is 2")
    look(f"{ensemble.url}?tick=0.2").one("tick", "wrong", "the option tick is 0.2")


def test_servers_that_are_down(ensemble: ZooKeeperEnsemble) -> None:
    url = f"{ensemble.url}?tick={TICK}"
    follower = ensemble.followers()[0]
    follower.kill()
    try:
        gone = look(url).one("reachable", "warning", "cannot be reached")
        assert gone.server == follower.address
        other = ensemble.followers()[-1]
        other.kill()
        until(lambda: "serves nobody" in str(look(url, timeout=2.0)))
        found = look(url, timeout=2.0)
        found.one("session", "wrong", "gives no session")
    finally:
        for node in ensemble.nodes:
            if not node.serves():
                node.kill()
                node.start()
        ensemble.ready()
    look(url).one("ensemble", "ok")


def test_some_servers_are_not_named(ensemble: ZooKeeperEnsemble) -> None:
    one, two = ensemble.followers()
    found = look(f"zookeeper://{one.address},{two.address}?tick={TICK}")
    found.one("ensemble", "note", "is the leader")
    leader = ensemble.leader()
    found = look(f"zookeeper://{one.address},{leader.address}?tick={TICK}")
    found.one("ensemble", "note", "2 servers that vote")


def test_short_sessions_and_closed_words_on_a_server_alone(ensemble: ZooKeeperEnsemble) -> None:
    options = "maxSessionTimeout=8000\n4lw.commands.whitelist=srvr\n"
    alone = ZooKeeperEnsemble(ALONE, options)
    try:
        found = look(f"{alone.url}?tick={TICK}")
        found.one("ensemble", "note", "standalone")
        found.one("session", "warning", "8 s")
        found.one("tick", "note", "not known")
        found = look(f"{alone.url},{ensemble.nodes[0].address}?tick={TICK}")
        found.one("ensemble", "wrong", "not of one ensemble")
        alone.nodes[0].kill()
        with pytest.raises(holdfast.BackendUnavailable):
            look(alone.url)
    finally:
        alone.stop()


@contextmanager
def without_words(port: int) -> Iterator[int]:
    """Yields the port of a relay before a server that lets no four letter word through."""

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            first = self.request.recv(65536)
            if len(first) == 4:
                return
            with socket.create_connection(("127.0.0.1", port)) as there:
                there.sendall(first)
                ways = {there: self.request, self.request: there}
                while True:
                    for one in select.select(list(ways), [], [])[0]:
                        data = one.recv(65536)
                        if not data:
                            return
                        ways[one].sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as relay:
        relay.daemon_threads = True
        thread = threading.Thread(target=relay.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield relay.server_address[1]
        finally:
            relay.shutdown()
            thread.join()


def test_all_words_are_closed(ensemble: ZooKeeperEnsemble) -> None:
    """As a firewall does it; a server of today never closes `srvr`."""
    with without_words(ensemble.nodes[0].port) as port:
        found = look(f"zookeeper://127.0.0.1:{port}?tick={TICK}")
    found.one("words", "note", "does not tell who leads")
    found.one("tick", "note", "not known")
    found.one("writes", "ok")


def test_znodes_of_another_user(ensemble: ZooKeeperEnsemble) -> None:
    from kazoo.client import KazooClient
    from kazoo.security import make_digest_acl

    client = KazooClient(ensemble.hosts)
    client.start()
    try:
        client.create("/theirs", acl=[make_digest_acl("owner", "secret", all=True)])
    finally:
        client.stop()
        client.close()
    found = look(f"{ensemble.url}/theirs?tick={TICK}")
    found.one("writes", "wrong", "cannot be created below /theirs")
    owner = ensemble.url.replace("zookeeper://", "zookeeper://owner:secret@")
    found = look(f"{owner}/theirs?tick={TICK}")
    found.one("writes", "ok")
    assert "secret" not in str(found)


def test_a_clock_that_differs(ensemble: ZooKeeperEnsemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is the one that is set."""
    real = time.time
    monkeypatch.setattr("holdfast.stores.measures.time.time", lambda: real() - 60)
    look(f"{ensemble.url}?tick={TICK}").one("clock", "warning", "ahead of ours")
