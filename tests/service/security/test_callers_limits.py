"""Nobody can use up what all share: each limit, reached and passed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast import ConfigError
from holdfast.service import Settings
from holdfast.service.pipelining import MOST_REQUESTS
from holdfast.service.security.rate import MOST, Buckets
from holdfast.service.service import MOST_TIMINGS_EACH
from service.running import eventually
from service.security.served import Served, make_token, problem, read_all, serve


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with small limits."""
    folder: Path = tmp_path_factory.mktemp("limits")
    make_token(folder / "tokens.json")
    with serve(
        folder,
        requests_per_second=0.5,
        requests_at_once=12,
        most_waits=2,
        most_listeners=2,
        longest_ttl=60.0,
        longest_wait=20.0,
        head_limit=4096,
        body_limit=2000,
        receive_within=2.5,
        send_within=2.5,
        most_connections=40,
    ) as running:
        yield running


def head(token: str, path: str = "/v1/locks", method: str = "GET", *lines: str) -> bytes:
    all_lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    return "\r\n".join([*all_lines, *lines, "", ""]).encode()


def test_a_body_that_is_too_large(small: Served) -> None:
    with small.as_(small.token()) as client:
        answer = client.post("/v1/locks/x/acquire", json={"label": "x" * 3000})
        assert answer.status_code == 413
        problem(answer)
    # Its length is not believed: it may be wrong, or not given.
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close")
    data = head(small.token(), "/v1/locks/x/acquire", "POST", *lines)
    answer_text = small.raw(data + b"1000\r\n" + b" " * 0x1000 + b"\r\n")
    assert answer_text.split()[1] == b"413"


def test_a_head_that_is_too_large(small: Served) -> None:
    token = small.token()
    for lines in (["X: " + "y" * 5000], [f"X{i}: y" for i in range(1000)]):
        assert small.raw(head(token, "/v1/locks", "GET", *lines)).split()[1] == b"431"
    assert small.raw(head(token, "/v1/locks?prefix=" + "y" * 5000)).split()[1] == b"431"


CHUNKED = (
    b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X: " + b"y" * 1000 + b"\r\n"),
        (CHUNKED + b"0\r\n", b"X: " + b"y" * 1000 + b"\r\n"),
        (CHUNKED + b"0\r\nX: ", b"y" * 1000),
        (CHUNKED + b"1;x=", b"y" * 1000),
    ],
    ids=["headers", "trailers", "one trailer", "extension"],
)
def test_a_head_that_never_ends(small: Served, begun: bytes, more: bytes) -> None:
    with small.connect() as connection:
        try:
            connection.sendall(begun)
            for _ in range(10_000):
                connection.sendall(more)
        except OSError:
            return
        pytest.fail("ten megabytes of headers were taken")


def test_a_head_behind_other_requests_is_as_large_as_it_is(served: Served) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 400
    asked, last = head + b"\r\n\r\n", head + b"\r\nConnection: close\r\n\r\n"
    number = 90
    assert number * len(asked) > Settings(url="memory://").head_limit
    with served.connect() as connection:
        connection.sendall(asked * number + last[:20])
        answers = b""
        while answers.count(b"HTTP/1.1 200 OK") < number:
            part = connection.recv(65536)
            assert part, answers[-500:]
            answers += part
        connection.sendall(last[20:])
        answers += read_all(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == number + 1


BEGUN = (
    b"",
    b"GET /healthz HTT",
    b"\r\n\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{",
)


def test_a_request_that_trickles_in_is_given_up(small: Served) -> None:
    """A byte now and then does not keep a connection open."""
    with ExitStack() as stack:
        connections = {begun: stack.enter_context(small.connect()) for begun in BEGUN}
        for begun, connection in connections.items():
            connection.sendall(begun)
            connection.settimeout(0.05)

        def ended() -> bool:
            for begun, connection in list(connections.items()):
                if _closed(connection) or not _trickle(connection, begun):
                    del connections[begun]
            return not connections

        eventually(ended, "all are closed")


def _trickle(connection: socket.socket, begun: bytes) -> bool:
    """Sends one byte more, if any was sent; False: the connection is closed."""
    try:
        if begun:
            connection.sendall(b"\n" if begun.startswith(b"\r") else b"x")
    except OSError:
        return False
    return True


def test_a_request_that_is_carried_out_is_not_hurried(small: Served) -> None:
    with small.as_(small.token("hold", "slow:")) as client:
        assert client.post("/v1/locks/slow:1/acquire", json={"owner": "s-1"}).status_code == 200
        answer = client.post("/v1/locks/slow:1/acquire", json={"owner": "s-2", "wait": 3.5})
        assert answer.status_code == 409  # and not cut after the time that it may take to come


def test_requests_behind_one_that_waits_are_answered_or_refused(small: Served) -> None:
    """However many they are, and however long that takes: no limit of the connection cuts them."""
    token = small.token("hold", "pipe:")
    with small.as_(token) as client:
        assert client.post("/v1/locks/pipe:1/acquire", json={"owner": "p-1"}).status_code == 200
    body = b'{"owner":"p-2","wait":3.5}'
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    waiting = head(token, "/v1/locks/pipe:1/acquire", "POST", *lines) + body
    answers = small.raw(waiting + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20_000)
    statuses = [answer[:3] for answer in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"409", *[b"200"] * MOST_REQUESTS, b"429"]


def test_too_many_connections(small: Served) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(small.connect()) for _ in range(60)]
        for connection in connections:
            connection.settimeout(0.01)

        def refused() -> int:
            return sum(_closed(connection) for connection in connections)

        eventually(lambda: refused() >= 20, "some are refused")
    # Once they are gone, others are let in.
    eventually(lambda: small.raw(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n"), "let in")


def _closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_ttl_and_wait(small: Served) -> None:
    with small.as_(small.token()) as client:
        for body in ({"ttl": 61}, {"wait": 21}, {"ttl": 1e300}, {"wait": -1}, {"ttl": 0}):
            assert client.post("/v1/locks/x/acquire", json=body).status_code == 422, body
        renewal = {"claims": [{"name": "x", "owner": "o", "ttl": 61}]}
        assert client.post("/v1/renew", json=renewal).status_code == 422
        assert (
            client.post("/v1/acquire", json={"locks": [{"name": "x", "ttl": 61}]}).status_code
            == 422
        )


def test_names(small: Served) -> None:
    with small.as_(small.token()) as client:
        for name in ("x" * 1025, "%00", "%7F", "%C2%85", "%ED%A0%80", "%FF", "%E2%80%A8"):
            assert client.get(f"/v1/locks/{name}").status_code == 422, name


def test_requests_in_a_second(small: Served) -> None:
    token, other = small.token(), small.token()
    with small.as_(token) as client:
        answers = [client.get("/v1/me") for _ in range(20)]
        statuses = [answer.status_code for answer in answers]
        assert statuses[:12] == [200] * 12
        refused = answers[-1]
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        problem(refused)
    with small.as_(other) as client:  # which has a bucket of its own
        assert client.get("/v1/me").status_code == 200


def test_requests_that_wait(small: Served) -> None:
    token = small.token("hold", "wait:")
    with small.as_(token) as client, ExitStack() as stack:
        assert client.post("/v1/locks/wait:1/acquire", json={"owner": "w-0"}).status_code == 200
        body = b'{"wait": 20, "owner": "w-%d"}'
        for number in (1, 2):
            connection = stack.enter_context(small.connect())
            data = body % number
            lines = ("Content-Type: application/json", f"Content-Length: {len(data)}")
            connection.sendall(head(token, "/v1/locks/wait:1/acquire", "POST", *lines) + data)
        eventually(lambda: small.app.service.waiting == 2, "two wait")
        answer = client.post("/v1/locks/wait:1/acquire", json={"wait": 20, "owner": "w-3"})
        assert answer.status_code == 429
        with small.as_(small.token("hold", "wait:")) as another:  # is let in, and gives up
            body_of_another = {"wait": 0.01, "owner": "w-4"}
            answer = another.post("/v1/locks/wait:1/acquire", json=body_of_another)
            assert answer.status_code == 409
    eventually(lambda: small.app.service.waiting == 0, "their clients are gone")
    with small.as_(small.token("hold", "wait:")) as client:
        state = client.get("/v1/locks/wait:1").json()
        assert state["waiters"] == []


def test_places_in_queues(small: Served) -> None:
    with small.as_(small.token("hold", "queue:")) as client:
        assert client.post("/v1/locks/queue:1/acquire", json={"owner": "q-0"}).status_code == 200
        statuses = [
            client.post(
                "/v1/locks/queue:1/acquire", json={"queue": True, "owner": f"q-{number}"}
            ).status_code
            for number in (1, 2, 3)
        ]
        assert statuses == [202, 202, 429]
        client.post("/v1/locks/queue:1/release", json={"owner": "q-2"})
        again = client.post("/v1/locks/queue:1/acquire", json={"queue": True, "owner": "q-4"})
        assert again.status_code == 202
        # Whoever observes an election keeps a place, too. One that is there may ask again.
        changes = "/v1/elections/queue:2/changes"
        assert client.get(changes, params={"owner": "q-5"}).status_code == 429
        once_more = client.post("/v1/locks/queue:1/acquire", json={"queue": True, "owner": "q-4"})
        assert once_more.status_code == 202
        client.post("/v1/locks/queue:1/release", json={"owner": "q-4"})
        for _ in range(2):
            assert client.get(changes, params={"owner": "q-5"}).status_code == 200
        assert client.get(changes, params={"owner": "q-6"}).status_code == 429


def test_listeners(small: Served) -> None:
    token = small.token("read", "listen:")
    with ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(small.connect())
            connection.sendall(head(token, "/v1/events"))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        answer = small.raw(head(token, "/v1/events", "GET", "Connection: close"))
        assert answer.split()[1] == b"429"
    eventually(lambda: not small.app.service.streams, "their clients are gone")
    with small.connect() as connection:
        connection.sendall(head(token, "/v1/events"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_an_address_that_tries_tokens_is_told_to_wait(tmp_path: Path) -> None:
    make_token(tmp_path / "tokens.json")
    with serve(tmp_path, failures_per_second=1.0) as running, running.as_("x") as client:
        statuses = {client.get("/v1/locks").status_code for _ in range(40)}
        assert statuses == {401, 429}
        # A good token from the same address is let in all the same.
        with running.as_(running.token()) as good:
            assert good.get("/v1/locks").status_code == 200


def test_probes_ask_the_store_once(small: Served) -> None:
    asked: list[str] = []
    store = small.app.service.first_store
    before = store.inspect

    async def inspect(name: str) -> object:
        asked.append(name)
        return await before(name)

    store.inspect = inspect  # type: ignore[method-assign, assignment]
    try:
        threads = [
            threading.Thread(target=small.raw, args=(b"GET /readyz HTTP/1.0\r\nHost: x\r\n\r\n",))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        store.inspect = before  # type: ignore[method-assign]
    assert len(asked) < 10


def test_buckets_fill_again_and_forget() -> None:
    now = 100.0
    buckets = Buckets(2.0, 4.0, lambda: now)
    assert [buckets.take("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    now += 0.5
    assert (buckets.take("a"), buckets.take("a")) == (0.0, 0.5)
    now += 1000.0
    assert [buckets.take("a") for _ in range(5)].count(0.0) == 4
    now -= 50.0  # a clock that goes back takes nothing away, and gives nothing
    assert buckets.take("a") > 0
    for number in range(MOST + 10):
        buckets.take(str(number))
    assert len(buckets._levels) == MOST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("most_waits", 0),
        ("requests_per_second", -1.0),
        ("requests_at_once", 0.5),
        ("idle_within", 0),
    ],
)
def test_limits_that_make_no_sense(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_a_client_that_does_not_read_is_given_up(small: Served) -> None:
    with small.connect() as connection:
        connection.settimeout(0.2)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100

        def cut() -> bool:
            try:
                connection.send(asked)
            except TimeoutError:
                return False
            except OSError:
                return True
            return False

        eventually(cut, "the connection ends")


def test_a_body_that_need_not_come_is_not_waited_for(small: Served) -> None:
    """What is answered before the body has come."""
    lines = ("Content-Type: application/json", "Content-Length: 1000000")
    with small.connect() as connection:
        connection.sendall(head("x", "/v1/locks/x/acquire", "POST", *lines) + b"{")
        answer = read_all(connection)
    assert answer.split()[1] == b"401"


def test_one_token_does_not_take_the_timings_of_all(tmp_path: Path) -> None:
    with serve(tmp_path) as running:
        greedy, other = running.token("read", ""), running.token("hold", "")
        with running.as_(greedy) as client:
            for number in range(MOST_TIMINGS_EACH):
                answer = client.get("/v1/locks/x", params={"heartbeat": f"0.{number + 1}"})
                assert answer.status_code == 200, answer.text
            answer = client.get("/v1/locks/x", params={"heartbeat": "7"})
            assert problem(answer)["status"] == 422
            # What is there may be used, by whomever it was first wanted.
            assert client.get("/v1/locks/x", params={"heartbeat": "0.1"}).status_code == 200
        with running.as_(other) as client:
            for heartbeat in ("0.1", "7"):
                answer = client.get("/v1/locks/x", params={"heartbeat": heartbeat})
                assert answer.status_code == 200, answer.text
