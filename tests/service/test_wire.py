"""Answers on the wire: one write for each, in their order, and an end where one is announced."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from holdfast.service.one_write import HeadKeeper
from holdfast.service.pipelining import MOST_REQUESTS
from service.running import LIMIT, Api, eventually

ACQUIRE = b"POST /v1/locks/%b/acquire HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%b"


class Transport:
    """A transport that remembers what was done with it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True


def test_a_head_that_is_kept_goes_out_with_its_body() -> None:
    transport = Transport()
    keeper = HeadKeeper(transport)  # type: ignore[arg-type]
    keeper.write(b"100 continue, ")
    keeper.keep_head()
    keeper.write(b"head, ")
    assert transport.written == [b"100 continue, "]
    keeper.write(b"body")
    keeper.write(b"next head, ")
    keeper.write(b"next body")
    keeper.close()
    assert transport.written == [b"100 continue, ", b"head, body", b"next head, ", b"next body"]
    assert transport.closed


def connect(api: Api) -> socket.socket:
    host, _, port = api.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), LIMIT)


def read_answers(connection: socket.socket, number: int = -1) -> list[tuple[bytes, Any]]:
    """Returns the head and the body of so many answers; without a number, until the connection ends."""
    found: list[tuple[bytes, Any]] = []
    data = b""
    while len(found) != number:
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                assert data == b""
                return found
            data += part
        head, _, data = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(data) < length:
            data += connection.recv(65536)
        found.append((head, json.loads(data[:length])))
        data = data[length:]
    return found


def test_requests_sent_together_are_answered_in_their_order(api: Api, name: str) -> None:
    requests = b""
    for number in range(20):
        body = b'{"owner":"pipelined-%02d","capacity":100}' % number
        more = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        requests += ACQUIRE % (name.encode(), more)
    with connect(api) as connection:
        connection.sendall(requests)
        answers = read_answers(connection, 20)
    assert [body["owner"] for _, body in answers] == [f"pipelined-{n:02d}" for n in range(20)]


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_a_connection_that_is_to_end_ends_after_its_answer(
    api: Api, name: str, method: bytes
) -> None:
    request = b"%b /v1/locks/%b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with connect(api) as connection:
        connection.sendall(request % (method, name.encode()))
        data = b""
        while part := connection.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert len(body) == (length if method == b"GET" else 0)


def test_a_client_that_is_told_to_go_on_gets_its_answer(api: Api, name: str) -> None:
    more = b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with connect(api) as connection:
        connection.sendall(ACQUIRE % (name.encode(), more))
        told = b""
        while b"\r\n\r\n" not in told:
            told += connection.recv(65536)
        assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        ((head, body),) = read_answers(connection, 1)
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body["name"] == name


def test_a_body_that_is_announced_as_too_large_is_not_asked_for(api: Api, name: str) -> None:
    more = b"Content-Length: 300000000\r\nExpect: 100-continue\r\n\r\n"
    with connect(api) as connection:
        connection.sendall(ACQUIRE % (name.encode(), more))
        ((head, body),) = read_answers(connection)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert body["type"] == "/problems/too-large"
    assert api.holders(name) == []


def test_a_client_that_sent_more_and_goes_away_leaves_no_ghost(api: Api, name: str) -> None:
    """A request behind one that waits does not hide that the client is gone."""
    holder = api.acquire(name)["owner"]
    body = b'{"wait":600}'
    more = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    following = b"GET /v1/locks/%b HTTP/1.1\r\nHost: a\r\n\r\n" % name.encode()
    with connect(api) as connection:
        connection.sendall(ACQUIRE % (name.encode(), more))
        eventually(lambda: api.waiters(name))
        connection.sendall(following * 3)
    eventually(lambda: not api.waiters(name))
    assert api.lock(name, "release", owner=holder).status_code == 200
    assert api.holders(name) == []


def wait_for(connection: socket.socket, api: Api, name: str) -> None:
    """Sends a request that waits for a lock which is held, and waits until it waits."""
    body = b'{"wait":600}'
    more = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    connection.sendall(ACQUIRE % (name.encode(), more))
    eventually(lambda: api.waiters(name))


def is_read(connection: socket.socket) -> bool:
    """Tells whether the service has read all that was sent.

    The table is read in parts, and rows move meanwhile: one that is missing may be there next time.
    """
    ports = {connection.getsockname()[1], connection.getpeername()[1]}
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table][1:]
    queues = [
        row[4] for row in rows if {int(end.rpartition(":")[2], 16) for end in row[1:3]} == ports
    ]
    return len(queues) == 2 and all(queue == "00000000:00000000" for queue in queues)


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_client_that_sends_ever_more_is_refused_in_its_turn(api: Api, name: str) -> None:
    holder = api.acquire(name)["owner"]
    with connect(api) as connection:
        wait_for(connection, api, name)
        for _ in range(3):
            connection.sendall(HEALTH * MOST_REQUESTS)
        eventually(lambda: is_read(connection))
        api.lock(name, "release", owner=holder)
        answers = read_answers(connection)
    assert [int(head.split()[1]) for head, _ in answers] == [200] * (MOST_REQUESTS + 1) + [429]
    assert answers[0][1]["name"] == name
    assert b"\r\nconnection: close" in answers[-1][0].lower()
    assert answers[-1][1]["type"] == "/problems/too-many"


def test_a_large_body_behind_a_request_that_waits_is_refused_in_its_turn(
    api: Api, name: str
) -> None:
    holder = api.acquire(name)["owner"]
    large = b'{"label":"%b"}' % (b"x" * 200_000)
    more = b"Content-Length: %d\r\n\r\n%b" % (len(large), large)
    with connect(api) as connection:
        wait_for(connection, api, name)
        connection.sendall(ACQUIRE % (name.encode(), more) + HEALTH)
        eventually(lambda: is_read(connection))
        api.lock(name, "release", owner=holder)
        answers = read_answers(connection)
    assert [int(head.split()[1]) for head, _ in answers] == [200, 429]


def test_a_client_that_sent_too_much_and_goes_away_leaves_no_ghost(api: Api, name: str) -> None:
    api.acquire(name)
    with connect(api) as connection:
        wait_for(connection, api, name)
        for _ in range(3):
            connection.sendall(HEALTH * MOST_REQUESTS)
        eventually(lambda: is_read(connection))
    eventually(lambda: not api.waiters(name))
