"""Our end of HTTP/2, without sockets: `h2` as the other end, rules that a server breaks, and noise."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, cast

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from holdfast.stores.etcd.wire.http2 import connection as connection_module
from holdfast.stores.etcd.wire.http2 import frames
from holdfast.stores.etcd.wire.http2.connection import Connection
from holdfast.stores.etcd.wire.http2.frames import Broken, frame, read_head, settings
from holdfast.stores.etcd.wire.http2.grpc import framed
from holdfast.stores.etcd.wire.http2.headers import request_block
from holdfast.stores.etcd.wire.http2.sending import Stream

BLOCK = request_block("/etcdserverpb.KV/Txn", "h:1", False, "")
GREETING = settings({})
OK_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


class Server:
    """The other end: `h2`, which checks all that we send."""

    def __init__(self, **values: int) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2: Any = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        codes = h2.settings.SettingCodes
        self.h2.update_settings({codes[name]: value for name, value in values.items()})
        self.requests: dict[int, bytes] = {}
        self.headers: dict[int, dict[str, str]] = {}
        self.complete: list[int] = []
        self.reset: list[int] = []
        self.hold_back = False
        """Received data is not acknowledged: the client's windows are not widened."""

    def receive(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.headers[event.stream_id] = dict(cast(Any, event.headers))
                self.requests[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                self.requests[event.stream_id] += event.data
                if not self.hold_back:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.complete.append(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.reset.append(event.stream_id)

    def answer(self, stream: int, message: bytes, status: str = "0", text: str = "") -> None:
        self.h2.send_headers(stream, OK_HEADERS)
        data = framed(message)
        for start in range(0, len(data), 16384):
            self.h2.send_data(stream, data[start : start + 16384])
        trailers = [("grpc-status", status), ("grpc-message", text)]
        self.h2.send_headers(stream, trailers, end_stream=True)


def exchange(client: Connection, server: Server) -> list[Stream]:
    """Lets both ends talk until neither has anything more to say."""
    news: list[Stream] = []
    while True:
        out = client.take_output()
        server.receive(out)
        back = server.h2.data_to_send()
        news += client.receive(back)
        if not out and not back:
            return list(dict.fromkeys(news))


def test_a_call() -> None:
    client, server = Connection(), Server()
    stream = client.open(BLOCK, b"request", finished=True)
    exchange(client, server)
    assert server.complete == [1]
    assert server.requests[1] == framed(b"request")
    assert server.headers[1][":path"] == "/etcdserverpb.KV/Txn"
    assert server.headers[1]["hasleader"] == "true"
    server.answer(1, b"reply")
    assert exchange(client, server) == [stream]
    assert stream.messages == [b"reply"]
    assert stream.end is not None
    assert stream.end.code == "OK"
    assert not client.busy


def test_many_calls_with_all_kinds_of_ends() -> None:
    client, server = Connection(), Server()
    draw = random.Random(3)
    for number in range(300):
        request = draw.randbytes(draw.choice((0, 1, 100, 40_000)))
        stream = client.open(BLOCK, request, finished=True)
        exchange(client, server)
        assert server.requests[stream.id] == framed(request)
        status = draw.choice(("0", "0", "5", "14", "16", "99"))
        reply = draw.randbytes(draw.choice((0, 3, 20_000)))
        server.answer(stream.id, reply, status, f"caf%C3%A9 {number}" if status != "0" else "")
        exchange(client, server)
        assert stream.end is not None
        assert stream.messages == [reply]
        code = {"0": "OK", "5": "NOT_FOUND", "14": "UNAVAILABLE", "16": "UNAUTHENTICATED"}
        assert stream.end.code == code.get(status, "UNKNOWN")
        assert stream.end.details == ("" if status == "0" else f"café {number}")


def test_a_request_keeps_to_the_windows_of_the_server() -> None:
    client, server = Connection(), Server(INITIAL_WINDOW_SIZE=1000)
    exchange(client, server)
    server.hold_back = True
    request = bytes(100_000)
    stream = client.open(BLOCK, request, finished=True)
    exchange(client, server)  # h2 would refuse more than it allows
    assert len(server.requests[1]) == 1000
    server.h2.increment_flow_control_window(50_000, 1)
    exchange(client, server)
    assert len(server.requests[1]) == 51_000
    server.h2.increment_flow_control_window(100_000, 1)
    exchange(client, server)
    assert len(server.requests[1]) == 65_535  # as much as the connection allows
    server.h2.increment_flow_control_window(100_000)
    exchange(client, server)
    assert server.requests[1] == framed(request)
    assert server.complete == [1]
    assert stream.end is None


def test_windows_that_shrink_under_way() -> None:
    client, server = Connection(), Server()
    server.hold_back = True
    client.open(BLOCK, bytes(60_000), finished=False)
    exchange(client, server)
    server.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    exchange(client, server)
    client.open(BLOCK, b"a longer message", finished=True)
    exchange(client, server)
    assert len(server.requests[3]) == 10
    server.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 65535})
    exchange(client, server)
    assert server.complete == [3]


def test_what_is_received_is_let_through_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REFILL", 50_000)
    client, server = Connection(), Server()
    stream = client.open(BLOCK, b"watch", finished=False)
    exchange(client, server)
    server.h2.send_headers(1, OK_HEADERS)
    before = server.h2.local_flow_control_window(1)
    for _ in range(40):
        server.h2.send_data(1, framed(bytes(9_995)))
        exchange(client, server)
        assert stream.messages == [bytes(9_995)]
        stream.messages.clear()
    assert server.h2.local_flow_control_window(1) > before - 60_000


def test_streams_beyond_the_limit_wait_for_their_turn() -> None:
    client, server = Connection(), Server(MAX_CONCURRENT_STREAMS=2)
    exchange(client, server)
    streams = [client.open(BLOCK, b"%d" % number, finished=True) for number in range(5)]
    exchange(client, server)  # h2 would refuse a third
    assert server.complete == [1, 3]
    assert client.cancel(streams[4])  # nothing of it was sent
    server.answer(3, b"")
    exchange(client, server)
    assert server.complete == [1, 3, 5]
    server.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 10})
    exchange(client, server)
    assert server.complete == [1, 3, 5, 7]


def test_no_stream_is_allowed_until_the_server_says_so() -> None:
    client, server = Connection(), Server(MAX_CONCURRENT_STREAMS=0)
    exchange(client, server)
    stream = client.open(BLOCK, b"", finished=True)
    exchange(client, server)
    assert (stream.id, server.complete) == (0, [])
    server.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 1})
    exchange(client, server)
    assert server.complete == [1]


def test_a_server_that_goes_away() -> None:
    client, server = Connection(), Server()
    first, second = (client.open(BLOCK, b"", finished=True) for _ in range(2))
    exchange(client, server)
    server.answer(1, b"reply")
    out = server.h2.data_to_send()
    news = client.receive(frame(frames.GOAWAY, 0, 0, b"\0\0\0\1" + bytes(4)) + out)
    assert set(news) == {first, second}
    assert first.end is not None
    assert first.end.code == "OK"
    assert second.end is not None
    assert second.end.untouched
    assert client.full


def test_a_server_that_complains_about_pings() -> None:
    client = Connection()
    client.receive(GREETING + frame(frames.GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\x0btoo_many_pings"))
    assert client.too_many_pings


@pytest.mark.parametrize(
    ("reason", "code", "untouched"),
    [(7, "UNAVAILABLE", True), (8, "CANCELLED", False), (2, "UNAVAILABLE", False)],
)
def test_a_stream_that_the_server_resets(reason: int, code: str, untouched: bool) -> None:
    client, server = Connection(), Server()
    stream = client.open(BLOCK, b"", finished=True)
    exchange(client, server)
    server.h2.reset_stream(1, reason)
    assert exchange(client, server) == [stream]
    assert stream.end is not None
    assert (stream.end.code, stream.end.untouched) == (code, untouched)


def test_pings_are_answered_and_asked() -> None:
    client, server = Connection(), Server()
    exchange(client, server)
    server.h2.ping(b"12345678")
    client.ping()
    exchange(client, server)
    assert client.pings_answered == 1


def test_a_header_block_in_pieces_and_padding() -> None:
    client, server = Connection(), Server()
    stream = client.open(BLOCK, b"", finished=True)
    exchange(client, server)
    server.h2.send_headers(1, OK_HEADERS)
    server.h2.send_data(1, framed(b"padded"), pad_length=17)
    trailers = [("grpc-status", "0"), *((f"x-{n}", "y" * 900) for n in range(40))]
    server.h2.send_headers(1, trailers, end_stream=True)
    data = server.h2.data_to_send()
    assert any(kind == frames.CONTINUATION for kind in kinds(data))
    for at in range(len(data)):  # byte by byte
        client.receive(data[at : at + 1])
    assert stream.messages == [b"padded"]
    assert stream.end is not None
    assert stream.end.code == "OK"


def kinds(data: bytes) -> Iterator[int]:
    while data:
        upper, lower, kind, _, _ = read_head(data, 0)
        yield kind
        data = data[frames.HEAD + (upper << 8 | lower) :]


def test_given_up_streams_end_and_others_go_on() -> None:
    client, server = Connection(), Server()
    first, second = (client.open(BLOCK, b"", finished=True) for _ in range(2))
    exchange(client, server)
    server.answer(1, b"late")
    assert not client.cancel(first)
    exchange(client, server)
    server.answer(3, b"reply")
    assert exchange(client, server) == [second]
    assert second.messages == [b"reply"]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([(":status", "503")], "UNAVAILABLE"),
        ([(":status", "404"), ("content-type", "text/html")], "UNIMPLEMENTED"),
        ([(":status", "200"), ("content-type", "text/html")], "UNKNOWN"),
        ([(":status", "200"), ("grpc-status", "no number")], "UNKNOWN"),
    ],
)
def test_a_server_that_is_no_etcd(headers: list[tuple[str, str]], code: str) -> None:
    client, server = Connection(), Server()
    stream = client.open(BLOCK, b"", finished=True)
    exchange(client, server)
    server.h2.send_headers(1, headers, end_stream=True)
    exchange(client, server)
    assert stream.end is not None
    assert stream.end.code == code


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak HTTP/2"),
        (b"\x15\x03\x01\0\x02\x02\x46\0\0", "wants TLS"),
        (frame(frames.PING, 0, 0, bytes(8)), "does not speak HTTP/2"),
        (GREETING + b"\xff\xff\xff" + bytes(6), "too long"),
        (GREETING + frame(frames.PING, 0, 0, bytes(7)), "wrong length"),
        (GREETING + frame(frames.SETTINGS, 0, 0, bytes(5)), "wrong length"),
        (settings({frames.INITIAL_WINDOW_SIZE: 2**31}), "too large"),
        (settings({frames.MAX_FRAME_SIZE: 1}), "not allowed"),
        (GREETING + frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), "by nothing"),
        (GREETING + frames.window_update(0, 2**31 - 1), "too far"),
        (GREETING + frame(frames.WINDOW_UPDATE, 0, 0, b"x"), "too short"),
        (GREETING + frame(frames.HEADERS, 4, 2, b""), "not made"),
        (GREETING + frame(frames.DATA, 0, 99, b""), "not made"),
        (GREETING + frame(frames.RST_STREAM, 0, 99, bytes(4)), "not made"),
        (GREETING + frame(frames.HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\x0f"), "cannot be read"),
        (GREETING + frame(frames.HEADERS, 0, 1, b"") + frame(frames.PING, 0, 0), "middle"),
        (GREETING + frame(frames.CONTINUATION, 4, 1, b""), "no beginning"),
        (GREETING + frame(frames.HEADERS, 12, 1, b"\xff"), "padding"),
        (GREETING + frame(frames.DATA, 8, 1, b"\x09abc"), "padding"),
        (GREETING + frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), "pushes"),
        (GREETING + frame(frames.GOAWAY, 0, 0, bytes(3)), "too short"),
        (
            GREETING
            + frame(frames.HEADERS, 0, 1, bytes(16384))
            + 4 * frame(frames.CONTINUATION, 0, 1, bytes(16384)),
            "too long",
        ),
    ],
)
def test_a_server_that_breaks_the_rules(data: bytes, reason: str) -> None:
    client = Connection()
    client.open(BLOCK, b"", finished=True)
    with pytest.raises(Broken, match=reason):
        client.receive(data)


@pytest.mark.parametrize("prefix", [b"\1\0\0\0\1x", b"\0\xff\xff\xff\xff"])
def test_a_message_that_is_compressed_or_too_long_ends_its_stream(prefix: bytes) -> None:
    client, server = Connection(), Server()
    stream = client.open(BLOCK, b"", finished=True)
    exchange(client, server)
    server.h2.send_headers(1, OK_HEADERS)
    server.h2.send_data(1, prefix)
    exchange(client, server)
    assert stream.end is not None
    assert stream.end.code == "INTERNAL"
    assert server.reset == [1]


def test_noise_is_a_clean_error_or_nothing() -> None:
    """Random bytes, frames of random content, and good talks with a few bytes changed or cut off."""
    draw = random.Random(7)
    server = Server()
    client = Connection()
    client.open(BLOCK, b"request", finished=True)
    exchange(client, server)
    server.answer(1, b"reply")
    talk = GREETING + server.h2.data_to_send()
    broken = 0
    for number in range(20_000):
        client = Connection()
        client.open(BLOCK, b"request", finished=True)
        if number % 4 == 0:
            data = draw.randbytes(draw.randrange(60))
        elif number % 4 == 1:
            data = GREETING + b"".join(
                frame(
                    draw.randrange(12),
                    draw.randrange(256),
                    draw.choice((0, 1, 1, 3)),
                    draw.randbytes(draw.randrange(30)),
                )
                for _ in range(4)
            )
        else:
            noise = bytearray(talk)
            for _ in range(draw.randrange(1, 4)):
                noise[draw.randrange(len(noise))] = draw.randrange(256)
            data = bytes(noise[: draw.randrange(len(noise)) if number % 4 == 3 else len(noise)])
        try:
            for _ in range(3):
                client.receive(data)
                client.take_output()
        except Broken:
            broken += 1
    assert broken > 1000
