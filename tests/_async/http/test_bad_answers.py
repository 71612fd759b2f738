"""Whatever answers in place of a service: it is never taken for a grant, nor waited for without end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.model import Granted, Label, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.http._async.backend import HttpBackend
from holdfast.stores.http.address import Address, Endpoint
from servers.canned import CannedServer

SLACK = 10.0
JSON = b"Content-Type: application/json\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
PAGE = b"<html><body>Welcome to our guest network!</body></html>"


def answer(body: bytes, kind: bytes = JSON, status: bytes = OK) -> bytes:
    return status + kind + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


GRANT = {
    "name": "x",
    "owner": "OWNER",
    "state": "held",
    "token": 7,
    "ttl": 30.0,
    "remaining": 30.0,
    "waited": 0.0,
    "age": 0.0,
}
GOOD = json.dumps(GRANT).encode()
NONSENSE = {
    "a page": answer(PAGE, b"Content-Type: text/html\r\n"),
    "a page that says it is JSON": answer(PAGE),
    "no body": answer(b""),
    "half of an answer": answer(GOOD[: len(GOOD) // 2]),
    "less than it said": OK + JSON + b"Content-Length: 5000\r\n\r\n" + GOOD,
    "more than it said": OK + JSON + b"Content-Length: 10\r\n\r\n" + GOOD,
    "no length": OK + JSON + b"\r\n" + GOOD,
    "a length that is none": OK + JSON + b"Content-Length: -1\r\n\r\n" + GOOD,
    "two lengths": OK + JSON + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}  ",
    "a length and chunks": OK
    + JSON
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks without a size": OK
    + JSON
    + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
    "a body without end": OK + JSON + b"Content-Length: 999999999999\r\n\r\n" + b"x" * 65536,
    "a chunk without end": OK + JSON + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    "a head without end": OK + b"X: " + b"y" * 100_000,
    "another protocol": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "a change of protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "a redirect": answer(
        b"{}", JSON + b"Location: http://elsewhere/\r\n", b"HTTP/1.1 302 Found\r\n"
    ),
    "compressed": answer(GOOD, JSON + b"Content-Encoding: gzip\r\n"),
    "nested for ever": answer(b"[" * 100_000),
    "a list": answer(b"[]"),
    "a number": answer(b"7"),
    "an error without words": answer(b"", b"", b"HTTP/1.1 500 Oops\r\n"),
    "an error with words": answer(b'{"detail": "my fault"}', JSON, b"HTTP/1.1 500 Oops\r\n"),
    "a gateway that waits in vain": answer(PAGE, b"", b"HTTP/1.1 504 Gateway Timeout\r\n"),
}
WRONG: dict[str, dict[str, Any]] = {
    "another owner": {"owner": "somebody"},
    "another lock": {"name": "y"},
    "no token": {"token": None},
    "a token of zero": {"token": 0},
    "a token that is a text": {"token": "7"},
    "a token that is true": {"token": True},
    "a token with a fraction": {"token": 7.5},
    "no TTL": {"ttl": None},
    "a TTL of zero": {"ttl": 0},
    "an age below zero": {"age": -1.0},
    "an age that is a text": {"age": "1"},
    "another state": {"state": "waiting"},
}


@pytest.fixture
def server() -> Iterator[CannedServer]:
    with CannedServer(b"") as made:
        yield made


def backend_of(server: CannedServer) -> HttpBackend:
    place = Endpoint("127.0.0.1", server.port, None)
    return HttpBackend(Address((str(place),), {str(place): place}, "", ""), "holdfast")


def ticket() -> Ticket:
    return Ticket(Terms("x", 30.0, Label("host", 1)), new_owner(), False)


@pytest.mark.parametrize("kind", NONSENSE)
async def test_nonsense_is_no_grant(server: CannedServer, kind: str) -> None:
    server.answer = NONSENSE[kind]
    backend = backend_of(server)
    one = ticket()
    began = time.monotonic()
    try:
        with pytest.raises(holdfast.BackendUnavailable) as raised:
            await backend.acquire(one, backend.clock.now() + 0.3)
        assert "lock service" in str(raised.value)
        assert one.owner in backend._doubtful_owners
    finally:
        await backend.close()
    assert time.monotonic() - began < SLACK


@pytest.mark.parametrize("kind", WRONG)
async def test_a_grant_that_is_wrong_is_none(server: CannedServer, kind: str) -> None:
    one = ticket()
    server.answer = answer(json.dumps({**GRANT, "owner": one.owner, **WRONG[kind]}).encode())
    backend = backend_of(server)
    try:
        with pytest.raises(holdfast.BackendUnavailable, match="as a lock service does"):
            await backend.acquire(one, backend.clock.now() + 5.0)
        assert one.owner in backend._doubtful_owners
    finally:
        await backend.close()


async def test_a_grant_in_chunks_is_one(server: CannedServer) -> None:
    one = ticket()
    body = json.dumps({**GRANT, "owner": one.owner}).encode()
    pieces = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in body)
    server.answer = (
        OK + JSON + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\nX: y\r\n\r\n"
    )
    backend = backend_of(server)
    try:
        for _ in range(2):  # on the same connection
            grant = await backend.acquire(one, backend.clock.now() + 5.0)
            assert isinstance(grant, Granted)
            assert grant.token == 7
        assert len(backend._doubtful_owners) == 0
    finally:
        await backend.close()


async def test_the_age_of_a_lease_is_counted(server: CannedServer) -> None:
    one = ticket()
    server.answer = answer(json.dumps({**GRANT, "owner": one.owner, "age": 5.0}).encode())
    backend = backend_of(server)
    try:
        before = backend.clock.now()
        grant = await backend.acquire(one, before + 5.0)
        assert isinstance(grant, Granted)
        assert before - 5.0 <= grant.since <= backend.clock.now() - 5.0
    finally:
        await backend.close()


async def test_a_server_that_never_says_it_all_is_late(server: CannedServer) -> None:
    """It says something again and again, but never what was asked for."""
    server.answer = b"HTTP/1.1 100 Continue\r\n\r\n"
    backend = backend_of(server)
    began = time.monotonic()
    try:
        with pytest.raises(holdfast.BackendUnavailable, match="in time"):
            await backend.acquire(ticket(), backend.clock.now() + 0.3)
    finally:
        await backend.close()
    assert time.monotonic() - began < SLACK


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
async def test_who_is_not_let_in_is_told_what_to_do(server: CannedServer, status: bytes) -> None:
    problem = json.dumps({"type": "/problems/forbidden", "detail": "you there"}).encode()
    kind = b"Content-Type: application/problem+json\r\n"
    server.answer = answer(problem, kind, b"HTTP/1.1 " + status + b"\r\n")
    locks = holdfast.connect(server.url, token="very-s3cret")
    with pytest.raises(holdfast.ConfigError, match="you there") as raised:
        await locks.inspect("x")
    assert "token" in str(raised.value)
    assert b"Authorization: Bearer very-s3cret\r\n" in server.seen[0]
    for shown in (str(raised.value), repr(raised.value), repr(locks), str(locks), locks.url):
        assert "s3cret" not in shown
    await locks.close()


async def test_too_many_requests_are_sent_later(server: CannedServer) -> None:
    problem = json.dumps({"type": "/problems/too-many", "detail": "slowly"}).encode()
    kind = b"Content-Type: application/problem+json\r\nRetry-After: 1\r\n"
    server.answer = answer(problem, kind, b"HTTP/1.1 429 Too Many Requests\r\n")
    backend = backend_of(server)
    one = ticket()
    try:
        with pytest.raises(holdfast.BackendUnavailable, match="slowly"):
            await backend.acquire(one, backend.clock.now() + 2.5)
        assert len(server.seen) == 3
        assert one.owner not in backend._doubtful_owners
    finally:
        await backend.close()
