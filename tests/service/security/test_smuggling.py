"""Requests that a proxy and we might read differently: each is refused, or ends its connection."""

from __future__ import annotations

import pytest

from service.security.served import Served

HIDDEN = (
    b"DELETE /v1/locks/smuggled HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer TOKEN\r\n\r\n"
)
"""A second request, inside of what may be taken for the body of the first."""


def request(token: str, head: bytes, body: bytes = HIDDEN) -> bytes:
    lines = [
        b"POST /v1/locks/x/acquire HTTP/1.1",
        b"Host: localhost",
        b"Content-Type: application/json",
        b"Authorization: Bearer " + token.encode(),
    ]
    return (b"\r\n".join(lines) + b"\r\n" + head + b"\r\n" + body).replace(b"TOKEN", token.encode())


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 0\r\nContent-Length: 100\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x10\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 1 0\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: identity, chunked, identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"X: y\r\n Content-Length: 5\r\n",
        b"X\x00: y\r\n",
        b"X: a\x00b\r\n",
        b"X: a\rb\r\n",
        b": y\r\n",
        b"No-Colon\r\n",
    ],
)
def test_a_head_with_two_meanings(served: Served, head: bytes) -> None:
    answer = served.raw(request(served.token("admin"), head + b"Connection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"released" not in answer


@pytest.mark.parametrize(
    "body",
    [b"5\r\n{}   \r\n0\r\nX: y\r\n\r\n", b"-5\r\n{}\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n{}\r\n"],
)
def test_chunks_that_make_no_sense(served: Served, body: bytes) -> None:
    head = b"Transfer-Encoding: chunked\r\nConnection: close\r\n"
    answer = served.raw(request(served.token("admin"), head, body))
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert b"released" not in answer


def test_a_second_request_needs_a_token_of_its_own(served: Served) -> None:
    token = served.token("admin")
    first = request(token, b"Content-Length: 2\r\n", b"{}")
    second = b"GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = served.raw(first + second)
    assert answer.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 401" in answer
    assert b'"locks"' not in answer


def test_a_whole_address_in_the_first_line_names_no_other_host(served: Served) -> None:
    token = served.token("admin").encode()
    head = b"GET http://evil.example/v1/locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    answer = served.raw(head + b"Authorization: Bearer " + token + b"\r\n\r\n")
    assert answer.split()[1] in (b"200", b"400", b"421")
    other = head.replace(b"Host: localhost", b"Host: evil.example")
    assert served.raw(other + b"\r\n").split()[1] in (b"400", b"421")


def test_an_upgrade_is_not_taken(served: Served) -> None:
    head = (
        b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    with served.connect() as connection:
        connection.sendall(head)
        assert not connection.recv(4096).startswith(b"HTTP/1.1 101")
