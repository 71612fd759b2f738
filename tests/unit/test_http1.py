"""The reader of answers and the reader of events, whatever pieces they come in."""

from __future__ import annotations

import pytest

from holdfast.stores.http.wire.events import LONGEST_EVENT, EventReader
from holdfast.stores.http.wire.http1 import Broken, Reader, request_of

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
    b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, CONTINUED])
def test_an_answer_is_the_same_in_any_pieces(answer: bytes) -> None:
    for size in range(1, len(answer) + 1):
        reader = Reader()
        for start in range(0, len(answer), size):
            assert not reader.done
            reader.feed(answer[start : start + size])
        assert reader.done
        assert reader.keep
        assert reader.take_body() == b"hello"
        assert reader.status in (200, 201)


def test_names_of_headers_have_no_case_and_are_joined() -> None:
    reader = Reader()
    reader.feed(CHUNKED)
    assert reader.headers[b"x-a"] == b"1, 2"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\n", b"HTTP/1.0 200 OK\r\n"]
)
def test_a_connection_that_will_close_is_not_kept(head: bytes) -> None:
    reader = Reader()
    reader.feed(head + b"Content-Length: 0\r\n\r\n")
    assert reader.done
    assert not reader.keep


def test_what_follows_an_answer_ends_the_connection() -> None:
    reader = Reader()
    reader.feed(PLAIN + b"HTTP/1.1 200 OK")
    assert reader.done
    assert not reader.keep


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_an_answer_without_a_body(status: bytes) -> None:
    reader = Reader()
    reader.feed(b"HTTP/1.1 " + status + b"\r\n\r\n")
    assert reader.done
    assert reader.take_body() == b""


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 999 What\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"\x15\x03\x01\x00\x02\x02",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(answer: bytes) -> None:
    with pytest.raises(Broken):
        Reader().feed(answer)


def test_a_request_has_a_length() -> None:
    assert request_of("GET", "/a", b"Host: h\r\n", None) == b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
    assert request_of("POST", "/a", b"", b"{}").endswith(b"Content-Length: 2\r\n\r\n{}")


EVENTS = (
    b": hello\n\nevent: wakeup\r\ndata: {}\r\nid: 5\n\ndata: a\ndata:b\n\nevent: x\n\nevent: y\nda"
)


def test_events_are_the_same_in_any_pieces() -> None:
    for size in range(1, len(EVENTS) + 1):
        reader = EventReader()
        found = []
        for start in range(0, len(EVENTS), size):
            found += reader.feed(EVENTS[start : start + size])
        assert found == [("wakeup", b"{}"), ("", b"a\nb")]


@pytest.mark.parametrize("piece", [b"data: ", b"data: x\n"])
def test_an_event_without_end_is_refused(piece: bytes) -> None:
    reader = EventReader()
    reader.feed(piece * 1000)
    with pytest.raises(Broken):
        reader.feed(piece * (LONGEST_EVENT // 2))
