"""The wire on real sockets: a server that refuses, goes away, limits, is silent, or talks nonsense."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import forks
from holdfast.chaos.servers.ports import free_port
from holdfast.clock import system_clock
from holdfast.errors import LockError
from holdfast.stores import resolving
from holdfast.stores.etcd.address import Address
from holdfast.stores.etcd.wire.aio import Wire
from holdfast.stores.etcd.wire.failures import Failure
from holdfast.stores.etcd.wire.messages import LEASE_KEEP_ALIVE, RANGE
from servers.http2 import Http2Server, Link
from worlds.aio import Job, eventually, pause

now = system_clock().now


@pytest.fixture
def server() -> Iterator[Http2Server]:
    server = Http2Server()
    yield server
    server.close()


def wire_to(*endpoints: str) -> Wire:
    return Wire(Address(endpoints, "", "", None))


async def test_what_was_refused_is_sent_again(server: Http2Server) -> None:
    def refuse(server: Http2Server, link: Link, stream: int, message: bytes) -> bool:
        if server.calls == 1:
            link.h2.reset_stream(stream, 7)
        return server.calls == 1

    server.on_call = refuse
    server.reply = b"reply"
    wire = wire_to(server.endpoint)
    assert await wire.call(RANGE, b"request", 10.0) == b"reply"
    assert server.calls == 2
    await wire.close()


async def test_a_server_that_goes_away_is_asked_anew(server: Http2Server) -> None:
    """It handles nothing behind the stream that it names, and closes the connection."""

    def go(server: Http2Server, link: Link, stream: int, message: bytes) -> bool:
        if message == b"go":
            link.socket.sendall(b"\0\0\x08\7\0\0\0\0\0" + struct.pack(">II", stream - 2, 0))
            link.hang_up()
            return True
        return False

    wire = wire_to(server.endpoint)
    server.on_call = go
    assert await wire.call(RANGE, b"stay", 10.0) == b""

    def go_once(server: Http2Server, link: Link, stream: int, message: bytes) -> bool:
        server.on_call = None
        return go(server, link, stream, message)

    server.on_call = go_once
    assert await wire.call(RANGE, b"go", 10.0) == b""
    assert len(server.links) == 2
    await wire.close()


async def test_an_idle_connection_that_the_server_closed_is_replaced(server: Http2Server) -> None:
    wire = wire_to(server.endpoint)
    for count in (1, 2, 3):
        assert await wire.call(RANGE, b"", 10.0) == b""
        assert len(server.links) == count
        server.links[-1].hang_up()
        await pause(0.05)  # a request that crosses the end of its connection fails
    await wire.close()


async def test_no_more_streams_than_the_server_allows() -> None:
    server = Http2Server(limit=1)
    try:
        wire = wire_to(server.endpoint)
        await wire.call(RANGE, b"", 10.0)
        heard: list[bytes] = []
        streams = [wire.watch([b"w"], heard.append, print) for _ in range(2)]
        jobs = [Job(wire.call, RANGE, b"x", 20.0) for _ in range(20)]
        for job in jobs:
            assert await job.result() == b""
        assert server.together == 1
        await eventually(lambda: len(heard) == 2)  # watches are in nobody's way
        for stream in streams:
            await stream.close()
        await wire.close()
    finally:
        server.close()


async def test_a_keep_alive_leaves_its_side_open_until_there_is_a_reply(
    server: Http2Server,
) -> None:
    seen: list[Any] = []

    def noted(server: Http2Server, link: Link, stream: int, message: bytes) -> bool:
        seen.append(link.h2.streams[stream].closed)
        link.h2.send_headers(stream, [(":status", "200")])
        link.h2.send_data(stream, b"\0\0\0\0\2ok")  # and no word of an end
        return True

    server.on_call = noted
    wire = wire_to(server.endpoint)
    assert await wire.call(LEASE_KEEP_ALIVE, b"lease", 10.0) == b"ok"
    assert seen == [False]
    await wire.close()


async def test_a_silent_server_costs_no_more_than_the_time_given(server: Http2Server) -> None:
    server.on_call = lambda *args: True
    wire = wire_to(server.endpoint)
    for _ in range(2):
        began = now()
        with pytest.raises(Failure) as raised:
            await wire.call(RANGE, b"", 0.6)
        assert raised.value.code == "DEADLINE_EXCEEDED"
        assert 0.5 < now() - began < 20.0
    server.on_call = None
    assert await wire.call(RANGE, b"", 10.0) == b""
    await wire.close()


async def test_pings_do_not_prolong_a_call(server: Http2Server) -> None:
    over = threading.Event()

    def ping(server: Http2Server, link: Link, stream: int, message: bytes) -> bool:
        def go_on() -> None:
            while not over.wait(0.01):
                try:
                    link.socket.sendall(b"\0\0\x08\6\0\0\0\0\0" + bytes(8))
                except OSError:
                    return

        threading.Thread(target=go_on, daemon=True).start()
        return True

    server.on_call = ping
    wire = wire_to(server.endpoint)
    with pytest.raises(Failure, match="DEADLINE"):
        await wire.call(RANGE, b"", 0.5)
    over.set()
    await wire.close()


async def test_closing_ends_what_is_under_way(server: Http2Server) -> None:
    server.on_call = lambda *args: True
    wire = wire_to(server.endpoint)
    job = Job(wire.call, RANGE, b"", 60.0)
    await eventually(lambda: server.calls == 1)
    await wire.close()
    assert isinstance(await job.error(), Failure)
    with pytest.raises(Failure, match="closed"):
        await wire.call(RANGE, b"", 1.0)
    with pytest.raises(Failure, match="closed"):
        wire.watch([], print, print)


async def test_nobody_at_the_port() -> None:
    wire = wire_to(f"127.0.0.1:{free_port()}")
    with pytest.raises(Failure, match="refused") as raised:
        await wire.call(RANGE, b"", 10.0)
    assert raised.value.unreachable
    assert raised.value.untouched
    ended: list[Failure] = []
    wire.watch([b"w"], print, ended.append)
    await eventually(lambda: ended)
    assert ended[0].unreachable
    await wire.close()


async def test_a_name_server_that_hangs_is_left_behind(
    server: Http2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    look_up = resolving.look_up

    def slowly(host: str, port: int, flags: int = 0) -> Any:
        assert flags or answer.wait(60.0)
        return look_up("127.0.0.1", port, flags)

    monkeypatch.setattr(resolving, "look_up", slowly)
    wire = wire_to(f"a-member.example:{server.port}")
    before = threading.active_count()
    for _ in range(3):
        began = now()
        with pytest.raises(Failure, match="in time"):
            await wire.call(RANGE, b"", 0.2)
        assert now() - began < 20.0
    assert threading.active_count() <= before + 1  # one question for all who wait
    answer.set()
    assert await wire.call(RANGE, b"", 10.0) == b""
    await wire.close()


async def test_a_name_that_stands_for_nothing() -> None:
    wire = wire_to("no-such-member.invalid:2379")
    with pytest.raises(Failure, match="cannot be re"):
        await wire.call(RANGE, b"", 20.0)
    await wire.close()


class Noise:
    """A server that sends the same bytes to whoever connects, and closes or stays."""

    def __init__(self, data: bytes, stay: bool) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._data = data
        self._stay = stay
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
                self._open.append(sock)
                sock.sendall(self._data)
                if not self._stay:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(20.0)  # it may have accepted one more
        for sock in self._open:
            sock.close()


async def test_noise_is_a_failure_and_never_a_hang() -> None:
    draw = random.Random(5)
    greeting = b"\0\0\0\4\0\0\0\0\0"
    for number in range(24):
        data = draw.choice((b"", greeting)) + draw.randbytes(draw.choice((1, 9, 40, 70_000)))
        noise = Noise(data, stay=number % 3 == 0)
        wire = wire_to(noise.endpoint)
        ended: list[Failure] = []
        stream = wire.watch([b"w"], print, ended.append)
        with pytest.raises(Failure):
            await wire.call(RANGE, b"", 0.3)
        if number % 3:
            await eventually(ended.__len__)
        await stream.close()
        await wire.close()
        noise.close()


@pytest.mark.parametrize("data", [b"\x15\x03\x01\0\x02\x02\x46"])
async def test_a_server_that_wants_tls(data: bytes) -> None:
    noise = Noise(data, stay=False)
    wire = wire_to(noise.endpoint)
    with pytest.raises(Failure, match="tls=1"):
        await wire.call(RANGE, b"", 10.0)
    await wire.close()
    noise.close()


async def test_a_watch_stream_that_falls_silent_ends(server: Http2Server) -> None:
    wire = wire_to(server.endpoint)
    wire._keep_alive.pause = 0.1
    wire._keep_alive.patience = 0.2

    def keep(server: Http2Server, link: Link, stream: int, message: bytes) -> bool:
        link.h2.send_headers(stream, [(":status", "200")])
        link.h2.send_data(stream, b"\0\0\0\0\2hi")
        return True

    server.on_call = keep
    heard: list[bytes] = []
    ended: list[Failure] = []
    wire.watch([b"w"], heard.append, ended.append)
    await eventually(lambda: server.links and server.links[0].pings >= 3)
    assert heard == [b"hi"]
    assert not ended  # pings are answered
    link = server.links[0]
    link.flush = lambda: None  # type: ignore[method-assign]
    await eventually(lambda: ended)
    assert "sign of life" in str(ended[0])
    await wire.close()


async def test_pings_become_fewer_where_the_server_complains(server: Http2Server) -> None:
    def complain(server: Http2Server, link: Link, stream: int, message: bytes) -> bool:
        payload = struct.pack(">II", stream, 11) + b"too_many_pings"
        head = struct.pack(">HBBBI", 0, len(payload), 7, 0, 0)
        link.socket.sendall(head + payload)
        link.hang_up()
        return True

    server.on_call = complain
    wire = wire_to(server.endpoint)
    pause = wire._keep_alive.pause
    ended: list[Failure] = []
    wire.watch([b"w"], print, ended.append)
    await eventually(lambda: ended)
    assert wire._keep_alive.pause == 2 * pause
    await wire.close()


async def test_clients_start_at_any_member() -> None:
    started = set()
    for _ in range(60):
        wire = wire_to("a:1", "b:1", "c:1")
        started.add(wire.endpoint)
        await wire.close()
    assert started == {"a:1", "b:1", "c:1"}


async def test_a_forked_child_is_refused_its_parents_connection(
    server: Http2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no hook ran at the fork."""
    wire = wire_to(server.endpoint)
    await wire.call(RANGE, b"", 10.0)
    with monkeypatch.context() as child:
        child.setattr(wire, "_made_in", forks.current() - 1)
        with pytest.raises(LockError, match="of the parent process"):
            await wire.call(RANGE, b"", 10.0)
        await wire.close()
    assert len(server.links) == 1
    wire.closed = False
    await wire.call(RANGE, b"", 10.0)
    await wire.close()
