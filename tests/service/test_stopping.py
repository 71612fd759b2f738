"""The service in a process of its own: started, stopped, killed, and with a store that goes away."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.chaos.servers.redis import RedisServer
from service.running import LIMIT, Process, Sse, eventually
from stores import STORES

Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Returns a function that starts `holdfast serve` with these words."""
    started: list[Process] = []

    def start_(*words: str, **environment: str) -> Process:
        started.append(Process(*words, environment=environment))
        return started[-1]

    yield start_
    for process in started:
        process.close()


def test_a_graceful_stop_answers_those_who_wait(start: Start, redis_url: str, name: str) -> None:
    process = start("--port", "0", "--url", redis_url)
    api = process.api()
    grant = api.acquire(name)
    waits = [api.later(name, wait=60) for _ in range(20)]
    stream = Sse(f"{api.url}/v1/events")
    stream.find("ready")
    eventually(lambda: len(api.waiters(name)) == 20)
    began = time.monotonic()
    process.process.send_signal(signal.SIGTERM)
    for later in waits:
        answer = later.answer()
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert answer.json()["type"] == "/problems/stopping"
    assert stream.ended.wait(20)
    status, _, err = process.end()
    assert (status, err) == (0, "")
    assert time.monotonic() - began < 10
    stream.close()
    # Nothing of them is left, and the lease is its caller's: it lives on.
    other = start("--port", "0", "--url", redis_url).api()
    assert other.waiters(name) == []
    assert other.holders(name) == [grant["owner"]]
    assert other.lock(name, "renew", owner=grant["owner"], ttl=20).status_code == 200


def test_a_stop_beside_a_silent_store_answers_everybody_and_ends_in_time(
    start: Start, name: str
) -> None:
    server = RedisServer()
    try:
        words = ("--port", "0", "--url", server.url)
        # The store would have much longer to answer than the stop may take.
        process = start(*words, HOLDFAST_SERVE_PATIENCE="50", HOLDFAST_SERVE_STOP_WITHIN="4")
        api = process.api()
        api.acquire(name)
        waits = [api.later(name, wait=60) for _ in range(20)]
        eventually(lambda: len(api.waiters(name)) == 20)
        server.pause()
        connection = http.client.HTTPConnection(api.url.removeprefix("http://"), timeout=LIMIT)
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        connection.request("GET", "/v1/locks")  # has been sent when this returns
        began = time.monotonic()
        process.process.send_signal(signal.SIGTERM)
        for later in waits:
            answer = later.answer()
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/stopping")
        asked = connection.getresponse()
        assert (asked.status, json.load(asked)["type"]) == (503, "/problems/stopping")
        connection.close()
        status, _, _ = process.end()
        assert status == 0
        assert time.monotonic() - began < 25  # and not 50, or 20 times some seconds
    finally:
        server.resume()
        server.stop()


def test_nothing_is_half_granted_when_it_stops_in_the_moment_of_a_grant(
    start: Start, redis_url: str, name: str
) -> None:
    process = start("--port", "0", "--url", redis_url)
    other = start("--port", "0", "--url", redis_url).api()
    api = process.api()
    owners = []
    waits = []
    for number in range(10):
        lock = f"{name}-{number}"
        owners.append(api.acquire(lock)["owner"])
        waits.append(api.later(lock, wait=60))
    for number in range(10):
        eventually(lambda one=f"{name}-{number}": other.waiters(one))  # type: ignore[misc]

    def release() -> None:
        for number, owner in enumerate(owners):
            other.lock(f"{name}-{number}", "release", owner=owner)

    releasing = threading.Thread(target=release)
    releasing.start()
    process.process.send_signal(signal.SIGTERM)
    releasing.join()
    for number, later in enumerate(waits):
        answer = later.answer()
        holders = other.holders(f"{name}-{number}")
        if answer.status_code == 200:
            assert holders == [answer.json()["owner"]]
        else:
            assert answer.status_code == 503
            assert holders == []
    assert process.end()[0] == 0


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_a_service_that_is_killed_takes_no_lease_along(
    start: Start, redis_url: str, tmp_path: Path, store: str, name: str
) -> None:
    url = redis_url if store == "redis" else f"sqlite://{tmp_path}/locks.db"
    doomed = start("--port", "0", "--url", url)
    api = doomed.api()
    other = start("--port", "0", "--url", url).api()
    grant = api.acquire(name, ttl=60)
    later = api.later(name, wait=60)
    queued = api.lock(name, "acquire", queue=True).json()["owner"]
    eventually(lambda: len(other.waiters(name)) == 2)
    doomed.process.kill()
    with pytest.raises(httpx.HTTPError):
        later.answer()
    assert other.lock(name, "renew", owner=grant["owner"], ttl=60).status_code == 200
    claims = {"claims": [{"name": name, "owner": queued, "ttl": 60}]}

    def waits_alone() -> bool:
        # It renews through the other service; what was waited for through the dead one goes.
        assert other.post("/v1/renew", claims).json()["outcomes"][0]["state"] == "waiting"
        return other.waiters(name) == [queued]

    eventually(waits_alone)
    assert other.lock(name, "release", owner=grant["owner"]).status_code == 200
    if other.post("/v1/renew", claims).json()["outcomes"][0]["state"] == "gone":
        # A store that could not wake it has passed it over: the place is lost, and no more.
        assert other.holders(name) == []
        other.acquire(name)


def test_a_graceful_stop_leaves_the_leases_on_etcd(start: Start, tmp_path: Path, name: str) -> None:
    with STORES["etcd"](tmp_path) as url:
        stopped = start("--port", "0", "--url", url)
        api = stopped.api()
        other = start("--port", "0", "--url", url).api()
        grant = api.acquire(name, ttl=60)
        assert other.lock(name, "renew", owner=grant["owner"], ttl=60).status_code == 200
        stopped.process.send_signal(signal.SIGTERM)
        assert stopped.end()[0] == 0
        assert other.lock(name, "renew", owner=grant["owner"], ttl=60).status_code == 200
        assert other.lock(name, "release", owner=grant["owner"]).status_code == 200


def test_a_store_that_goes_away_and_comes_back(start: Start, name: str) -> None:
    server = RedisServer("--save", "", "--appendonly", "yes")
    try:
        api = start("--port", "0", "--url", server.url, HOLDFAST_SERVE_PATIENCE="1").api()
        api.acquire(name)
        server.kill()
        for path in ("/readyz", f"/v1/locks/{name}"):
            answer = api.get(path)
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert answer.json()["type"] == "/problems/unavailable"
        refused = api.lock(f"{name}-2", "acquire", wait=1)
        assert refused.status_code == 503
        assert api.get("/healthz").status_code == 200
        server.start()
        eventually(lambda: api.get("/readyz").status_code == 200)
        api.acquire(f"{name}-3")
    finally:
        server.stop()


def test_it_starts_before_its_store_does(start: Start, name: str) -> None:
    server = RedisServer()
    server.kill()
    try:
        api = start("--port", "0", "--url", server.url, HOLDFAST_SERVE_PATIENCE="1").api()
        assert api.get("/readyz").status_code == 503
        server.start()
        eventually(lambda: api.get("/readyz").status_code == 200)
        api.acquire(name)
    finally:
        server.stop()


def test_a_port_in_use_is_said_in_words(start: Start, redis_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, out, err = start("--port", str(port), "--url", redis_url).end()
    assert (status, out) == (69, "")
    assert f"port {port} of 127.0.0.1 is in use" in err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_addresses_are_refused_without_tokens(
    start: Start, redis_url: str, host: str
) -> None:
    status, _, err = start("--host", host, "--port", "0", "--url", redis_url).end()
    assert status == 2
    assert "tokens" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "x"], "port must be a whole number"),
        (["--port", "70000"], "a port is from 0 to 65535"),
        (["--host", "no.such.host.invalid"], "there is no address to listen on"),
        (["--namespace", ""], "the namespace is empty"),
        (["--config", "/no/such/file"], "there is no configuration at"),
        (["--frob"], "there is no option --frob"),
        (["operand"], "one word too many"),
        (["--url", "frob://x"], "frob"),
    ],
)
def test_wrong_words(start: Start, words: list[str], said: str) -> None:
    status, _, err = start(*words).end()
    assert status == 2
    assert said in err


def test_settings_from_a_file_and_the_environment(
    start: Start, redis_url: str, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        f'url = "{redis_url}"\nnamespaces = ["blue", "green"]\nport = 1\nlongest_wait = 5\n'
    )
    os.chmod(file, 0o600)
    api = start("--config", str(file), HOLDFAST_SERVE_PORT="0").api()
    assert api.get("/v1/guarantees").json()["namespace"] == "blue"
    assert api.get("/v1/guarantees?namespace=green").status_code == 200
    assert api.lock(name, "acquire", wait=6).status_code == 422
    file.write_text("frob = 1\n")
    status, _, err = start("--config", str(file)).end()
    assert status == 2
    assert "unknown key 'frob'" in err


def test_several_namespaces_by_options(start: Start, redis_url: str) -> None:
    words = ("--port", "0", "--url", redis_url, "--namespace", "x", "--namespace=y")
    api = start(*words).api()
    assert api.get("/v1/guarantees").json()["namespace"] == "x"
    assert api.get("/v1/guarantees?namespace=y").json()["namespace"] == "y"
