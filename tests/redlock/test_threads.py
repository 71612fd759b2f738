"""Faults that only threads can cause each other."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import clock
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redlock import RedlockNodes, redlock_nodes, url_of
from holdfast.entries import Claim
from holdfast.model import GONE, Label, Queued, new_owner
from holdfast.stores._sync.contract import Terms, Ticket
from holdfast.stores.redlock.lua import NAMES, text_of
from holdfast.stores.redlock.membership import NodeTable
from holdfast.stores.redlock.wire import threads
from holdfast.stores.redlock.wire.threads_connection import NodeSocket, SocketSet
from worlds.stalls import Stalls
from worlds.threads import eventually

TTL = 60.0


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    made = RedlockNodes(3)
    try:
        yield made
    finally:
        made.stop()


def test_who_gives_up_at_the_moment_of_the_grant_leaves_nothing(nodes: RedlockNodes) -> None:
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0) as locks:
        held = locks.lock("x", ttl=TTL).acquire()
        backend: Any = locks._session().backend
        ticket = Ticket(Terms("x", TTL, Label("here", 1)), new_owner())
        deadline = backend.clock.now() + 20.0
        assert isinstance(backend.acquire(ticket, deadline), Queued)
        keep = backend._rounds._remember

        def overtaken(owner: str, hold: Any) -> None:
            leaving = threading.Thread(target=backend.release, args=("x", owner, deadline))
            leaving.start()
            leaving.join(20.0)
            keep(owner, hold)

        backend._rounds._remember = overtaken
        assert held.release() is True
        (outcome,) = backend.renew([Claim("x", ticket.owner, TTL)], deadline)
        assert outcome is GONE
        eventually(lambda: [node("EXISTS", "holdfast:{x}") for node in nodes.nodes] == [0] * 3)


def test_connections_are_made_at_the_same_time() -> None:
    """A thread's first request needs one to each node: two that hang cost their time-out once."""
    timeout = 4.0
    with (
        redlock_nodes(5) as nodes,
        holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=timeout) as locks,
    ):
        locks._session()  # the nodes vote; no connection for requests was made yet
        for index in (0, 2):
            nodes.nodes[index].pause()
        began = time.monotonic()
        with Stalls() as stalls:
            lease = locks.lock("x", ttl=TTL).acquire()
        took = time.monotonic() - began
        out = locks.inspect("x").out
        for index in (0, 2):
            nodes.nodes[index].resume()
        assert lease.release() is True
        assert took < 1.5 * timeout + stalls.seconds
        assert len(out) == 2  # and the others were not taken for such


def test_a_connection_with_an_overdue_answer_is_not_used_again(nodes: RedlockNodes) -> None:
    """Its node may be well, and needed: only the connection is gone."""
    proxy = Proxy(nodes.nodes[0].port)
    try:
        url = url_of([proxy.port, *[node.port for node in nodes.nodes[1:]]])
        with holdfast.connect(url, max_ttl=TTL, node_timeout=1.0) as locks:
            locks.lock("x", ttl=TTL).acquire().release()
            proxy.mute()
            locks.lock("x", ttl=TTL).acquire().release()  # by the two others; nobody waits for it
            nodes.nodes[2].pause()
            try:
                eventually(lambda: taken(locks))  # it is out until it was reached anew
            finally:
                nodes.nodes[2].resume()
    finally:
        proxy.close()


def test_connections_that_are_not_needed_any_more_are_looked_at(nodes: RedlockNodes) -> None:
    """One of many threads is left: a release that went out on another's socket may not have arrived."""
    proxy = Proxy(nodes.nodes[2].port)
    try:
        url = url_of([*[node.port for node in nodes.nodes[:2]], proxy.port])
        with holdfast.connect(url, max_ttl=TTL, node_timeout=5.0) as locks:
            lease = locks.lock("x", ttl=TTL).acquire()
            eventually(lambda: nodes.nodes[2]("EXISTS", "holdfast:{x}"))
            proxy.deaf = True
            assert lease.release() is True
            backend: Any = locks._session().backend
            backend._wire._idle.append(SocketSet(3))  # another thread's: they are used in turn
            proxy.hang_up()
            proxy.deaf = False

            def freed() -> bool:
                locks.lock("y", ttl=TTL).acquire().release()
                return not nodes.nodes[2]("EXISTS", "holdfast:{x}")

            eventually(freed)
    finally:
        proxy.close()


@pytest.mark.parametrize("told", [True, False])
def test_connections_that_were_closed_for_being_idle_are_made_anew(
    nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Closed by the servers, or by something between: all nodes are well."""
    monkeypatch.setattr(threads, "IDLE", 0.0)
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0) as locks:
        lease = locks.lock("x", ttl=TTL).acquire()
        backend: Any = locks._session().backend
        eventually(lambda: [node("EXISTS", "holdfast:{x}") for node in nodes.nodes] == [1] * 3)
        socket_set = backend._wire._idle[-1]
        for node in nodes.nodes:
            node("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        hung_up = select.poll()
        for node_socket in socket_set.sockets:
            hung_up.register(node_socket.fd, select.POLLRDHUP)
        eventually(lambda: len(hung_up.poll(0)) == 3)
        blamed: list[str] = []
        monkeypatch.setattr(
            backend._table, "report_failure", lambda index, reason: blamed.append(reason)
        )
        if told:
            assert lease.release() is True
        else:
            prefixes, ids = backend._commands.any_prefixes("x"), range(3)
            backend._rounds.give_back(prefixes, lease.owner, ids, ids, ())
        eventually(lambda: [node("EXISTS", "holdfast:{x}") for node in nodes.nodes] == [0] * 3)
        assert blamed == []


def test_a_node_that_stands_still_is_said_to_do_so(nodes: RedlockNodes) -> None:
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0) as locks:
        backend: Any = locks._session().backend
        eventually(lambda: not backend._recovery._routines)  # nobody else is about to ask it
        nodes.nodes[2].pause()
        try:
            with pytest.raises(holdfast.BackendUnavailable, match="did not answer in time"):
                backend._wire.reach(2, backend.clock.now() + 0.1)
        finally:
            nodes.nodes[2].resume()


def taken(locks: holdfast.Locks) -> bool:
    try:
        return locks.lock("x", ttl=TTL).acquire().release()
    except holdfast.BackendUnavailable:
        return False


def again_and_again(locks: holdfast.Locks) -> None:
    while True:
        locks.lock("x", ttl=TTL).acquire().release()


def test_an_interrupted_request_does_not_mix_up_the_answers_to_others(nodes: RedlockNodes) -> None:
    """Ctrl-C, or another exception of a signal handler, between reading a reply and passing it on."""
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0) as locks:
        with locks.lock("x", ttl=TTL):
            pass
        backend: Any = locks._session().backend
        node_socket = backend._wire._idle[-1].sockets[0]
        feed = node_socket._feed

        def interrupted(data: bytes) -> None:
            node_socket._feed = feed
            raise KeyboardInterrupt

        node_socket._feed = interrupted
        with pytest.raises(KeyboardInterrupt):
            again_and_again(locks)  # until this node's answer is among those that are waited for
        for _ in range(3):
            lease = locks.lock("x", ttl=TTL).acquire()
            begins = backend._held_rounds[lease.owner].begins

            def all_answered(begins: dict[int, int] = begins) -> bool:
                backend._wire.read_late_replies()
                return len(begins) == 3

            eventually(all_answered)
            assert min(begins.values()) > 10**12
            assert lease.release() is True


@pytest.fixture
def blamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reasons for which nodes were put out, as they come."""
    reasons: list[str] = []
    report = NodeTable.report_failure

    def noted(table: NodeTable, index: int, reason: str) -> None:
        if reason:
            reasons.append(reason)
        report(table, index, reason)

    monkeypatch.setattr(NodeTable, "report_failure", noted)
    return reasons


class StandingStill:
    """A clock that jumps ahead at its second reading after all was sent: there the thread stood."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ahead = 0.0
        self.readings = 0
        """The readings until it jumps."""

    def now(self) -> float:
        self.readings -= 1
        if self.readings == 0:
            self._ahead += self._seconds
            time.sleep(0.05)  # in which the replies come
        return clock.system_clock().now() + self._ahead


@pytest.mark.parametrize("still", ["before it sends", "once it has sent"])
def test_a_thread_that_stood_still_does_not_blame_nodes(
    nodes: RedlockNodes, blamed: list[str], monkeypatch: pytest.MonkeyPatch, still: str
) -> None:
    """Their replies are there. A stop signal, or other busy threads, have kept it from reading them."""
    timeout = 0.25
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=timeout) as locks:
        with locks.lock("x", ttl=TTL):
            pass
        backend: Any = locks._session().backend
        jumps = backend._wire.clock = StandingStill(2 * timeout)
        blamed.clear()
        send = NodeSocket.send

        def stand_still(node_socket: NodeSocket, *arguments: Any) -> None:
            if still == "before it sends" and node_socket.index == 0:
                time.sleep(2 * timeout)
            send(node_socket, *arguments)
            if still == "once it has sent" and node_socket.index == 2:
                jumps.readings = 2

        monkeypatch.setattr(NodeSocket, "send", stand_still)
        for _ in range(3):
            lease = locks.lock("x", ttl=TTL).acquire(timeout=30.0)
            assert lease.release() is True
    assert blamed == []


def test_busy_threads_cost_no_release(nodes: RedlockNodes, blamed: list[str]) -> None:
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(1000))

    threads_ = [threading.Thread(target=spin, daemon=True) for _ in range(8)]
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=0.25) as locks:
        with locks.lock("x", ttl=TTL):
            pass
        blamed.clear()
        for thread in threads_:
            thread.start()
        try:
            for _ in range(5):
                assert locks.lock("x", ttl=TTL).acquire(timeout=60.0).release() is True
        finally:
            over.set()
            for thread in threads_:
                thread.join()
    assert blamed == []


def test_a_new_socket_does_not_use_a_node_in_an_earlier_run(nodes: RedlockNodes) -> None:
    """Its snapshot has the marker of the incarnation in which this client still believes."""
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0) as locks:
        with locks.lock("x", ttl=TTL):
            pass
        backend: Any = locks._session().backend
        node = nodes.nodes[0]
        node("SAVE")
        node.kill()
        node.start()
        for name in NAMES:
            node("SCRIPT", "LOAD", text_of(name))  # as another client has done, which helps it back
        assert backend._table.nodes[0].incarnation
        while backend._wire._idle:  # other threads use them
            backend._wire._idle.pop().close()
        with locks.lock("x", ttl=TTL):
            assert [node("EXISTS", "holdfast:{x}") for node in nodes.nodes] == [0, 1, 1]
        assert "restarted" in backend._table.nodes[0].out_reason


def test_a_call_that_is_left_behind_closes_its_socket(nodes: RedlockNodes) -> None:
    locks = holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0)
    locks.inspect("x")
    backend: Any = locks._session().backend
    calls = backend._wire._calls
    reaching, go_on = threading.Event(), threading.Event()
    real = calls._opener.open

    def slow(index: int, deadline: float) -> Any:
        opened = real(index, deadline)  # just before the wire is shut
        reaching.set()
        assert go_on.wait(60.0)
        return opened

    calls._opener.open = slow
    calls._sockets[0].close()
    calls._sockets[0] = None
    left_behind = threading.Thread(target=calls.reach, args=(0, backend.clock.now() + 60.0))
    left_behind.start()
    assert reaching.wait(20.0)
    locks.close()
    assert all(one is None for one in calls._sockets)
    go_on.set()
    left_behind.join(20.0)
    assert not left_behind.is_alive()
    assert all(one is None for one in calls._sockets)


def test_a_release_that_is_held_up_between_two_nodes_wakes_a_waiter_who_finds_the_lock_free(
    nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread stands still for longer than the waiter tries; its next heartbeat is far away."""
    with holdfast.connect(nodes.url, max_ttl=TTL, node_timeout=5.0, heartbeat=60.0) as locks:
        held = locks.lock("x", ttl=TTL).acquire()
        with ThreadPoolExecutor(1) as pool:
            waiter = pool.submit(locks.lock("x", ttl=TTL).try_acquire, timeout=20.0)
            eventually(lambda: nodes.nodes[0]("LLEN", "holdfast:{x}:q"))
            releasing = threading.get_ident()
            send = NodeSocket.send

            def held_up(node_socket: NodeSocket, *args: Any) -> None:
                send(node_socket, *args)
                if threading.get_ident() == releasing:
                    time.sleep(0.2)

            monkeypatch.setattr(NodeSocket, "send", held_up)
            assert held.release() is True
            lease = waiter.result()
            assert lease is not None
            assert lease.release() is True
