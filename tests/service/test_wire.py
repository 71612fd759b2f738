"""Answers on the wire: one write for each, in their order, and an end where one is announced."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from holdfast.service import Settings
from holdfast.service.answers import Application, Message, Receive, Scope, Send
from holdfast.service.app import create_app
from holdfast.service.one_write import WholeSend
from holdfast.service.pipelining import MOST_REQUESTS
from service.running import LIMIT, Api, eventually, running

ACQUIRE = b"POST /v1/locks/%b/acquire HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%b"


class Cycle:
    """A request that is carried out, as uvicorn has it, and what was written for it."""

    def __init__(self, **differently: object) -> None:
        self.written: list[bytes] = []
        self.ended = 0
        self.default_headers = [(b"date", b"today")]
        self.disconnected = self.response_started = self.response_complete = False
        self.keep_alive = self.waiting_for_100_continue = True
        self.write_paused = False
        self.__dict__.update(differently)
        self.flow = self.transport = self.message_event = self

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def set(self) -> None:
        self.ended += 1

    def on_response(self) -> None:
        self.ended += 1


async def no_messages(message: Message) -> None:
    raise AssertionError(message)


def test_a_whole_answer_is_one_write() -> None:
    cycle = Cycle()
    whole = WholeSend(no_messages, cycle).whole  # type: ignore[arg-type]
    assert whole(200, b"content-length: 2\r\n", b"{}")
    assert cycle.written == [b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 2\r\n\r\n{}"]
    assert cycle.response_started
    assert cycle.response_complete
    assert not cycle.waiting_for_100_continue
    assert cycle.ended == 2
    assert not whole(200, b"content-length: 2\r\n", b"{}")  # a second one
    assert len(cycle.written) == 1


@pytest.mark.parametrize(
    "differently",
    [{"disconnected": True}, {"keep_alive": False}, {"write_paused": True}],
)
def test_an_answer_that_is_not_as_simple_is_left_to_the_server(
    differently: dict[str, bool],
) -> None:
    cycle = Cycle(**differently)
    whole = WholeSend(no_messages, cycle).whole  # type: ignore[arg-type]
    assert not whole(200, b"content-length: 2\r\n", b"{}")
    assert not cycle.written
    assert not cycle.response_started


def behind_other_software(app: Application) -> Application:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"by", b"other software")]
            await send(message)

        await app(scope, receive, send_on)

    return call


def test_other_software_before_the_service_is_not_passed_by(redis_url: str, name: str) -> None:
    app = create_app(Settings(url=redis_url), middleware=[behind_other_software])
    request = b"GET /v1/locks/%b HTTP/1.1\r\nHost: a\r\n\r\n" % name.encode()
    found: dict[bool, tuple[list[bytes], Any]] = {}
    for other in (True, False):
        with (
            running(redis_url, app if other else None) as (api, _),
            connect(api) as connection,
        ):
            connection.sendall(request)
            ((head, body),) = read_answers(connection, 1)
        lines = [one for one in head.split(b"\r\n") if not one.startswith(b"date: ")]
        found[other] = lines, body
    assert found[True][0].pop() == b"by: other software"
    assert found[True] == found[False]


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
