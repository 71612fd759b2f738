"""The lock service on Redis: a pair of requests, many that wait, and many that listen.

The service runs in a process of its own. A bare endpoint of the same server, in front of what is ours,
echoes what it is sent: the floor, with the same bodies, on the same kind of connection.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from .measure import Child, Row, Setting, duration, interleave, ratio, say
from .redis_server import server

OURS, ECHO = "acquire + release over HTTP", "two echoes"
WAITERS, MOST_MB = 5_000, 200
LISTENERS, MOST_SLOWER = 1_000, 1.10
PATIENCE = 120.0


def figure(setting: Setting) -> list[Row]:
    _raise_limit()
    rounds = 10 if setting.quick else 60
    waiters = 500 if setting.quick else WAITERS
    listeners = 100 if setting.quick else LISTENERS
    with server(setting.folder) as port, Child("bench.service", "serve", port) as service:
        told = service.receive()
        return [
            _pair(told["port"], rounds),
            _listening(told["port"], listeners, 2 if setting.quick else 5),
            _waiting(told["port"], told["pid"], waiters),
        ]


class Connection:
    """A connection on which one request after another is made."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def send(self, path: str, body: bytes) -> None:
        self._socket.sendall(request(path, body))

    def ask(self, path: str, body: bytes) -> bytes:
        """Returns the body of the answer, which has to be a good one."""
        self.send(path, body)
        while b"\r\n\r\n" not in self._rest:
            self._rest += self._socket.recv(65536)
        head, _, data = self._rest.partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")), self._rest
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(data) < length:
            data += self._socket.recv(65536)
        self._rest = data[length:]
        return data[:length]

    def close(self) -> None:
        self._socket.close()


def request(path: str, body: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def pair(connection: Connection, first: str, second: str) -> Callable[[int], None]:
    """Returns a batch of an acquire and a release, or of the same bodies to another endpoint."""

    def batch(number: int) -> None:
        for index in range(number):
            owner = f"bench{time.monotonic_ns():x}{index}"
            connection.ask(first, b'{"owner":"%b","ttl":30}' % owner.encode())
            connection.ask(second, b'{"owner":"%b"}' % owner.encode())

    return batch


def _pair(port: int, rounds: int) -> Row:
    connection = Connection(port)
    samples = interleave(
        {
            OURS: pair(connection, "/v1/locks/bench/acquire", "/v1/locks/bench/release"),
            ECHO: pair(connection, "/echo", "/echo"),
        },
        rounds,
        100,
    )
    connection.close()
    found = ratio(samples[OURS], samples[ECHO])
    ours, echo = (duration(median(samples[name])) for name in (OURS, ECHO))
    numbers = {name: median(values) for name, values in samples.items()}
    return Row(OURS, ours, f"{ECHO} {echo}", found, "≤ 3", found <= 3, numbers)


def _listening(port: int, listeners: int, rounds: int) -> Row:
    """Compares grants while nobody listens to events, and while many do."""
    connection = Connection(port)
    batch = pair(connection, "/v1/locks/bench/acquire", "/v1/locks/bench/release")
    batch(200)
    alone: list[float] = []
    heard: list[float] = []
    for _ in range(rounds):
        alone.append(_timed(batch, 1500))
        with Child("bench.service", "listen", port, listeners) as crowd:
            crowd.receive()
            time.sleep(1.5)  # the first look at the store
            heard.append(_timed(batch, 1500))
        time.sleep(0.5)
    connection.close()
    found = ratio(heard, alone)
    what = f"the same beside {listeners:,} listeners"
    numbers = {"alone": alone, "heard": heard}
    met = found <= MOST_SLOWER
    shown = f"nobody listens {duration(median(alone))}"
    return Row(what, duration(median(heard)), shown, found, f"≤ {MOST_SLOWER:g}", met, numbers)


def _timed(batch: Callable[[int], None], number: int) -> float:
    began = time.perf_counter()
    batch(number)
    return (time.perf_counter() - began) / number


def _waiting(port: int, pid: int, waiters: int) -> Row:
    """Counts what a service with many held requests has in memory."""
    before = _megabytes(pid)
    asking = Connection(port)
    asking.ask("/v1/locks/crowded/acquire", b'{"ttl":3600}')
    held = []
    began = time.monotonic()
    for index in range(waiters):
        connection = Connection(port)
        connection.send("/v1/locks/crowded/acquire", b'{"wait":600,"ttl":30,"label":"w%d"}' % index)
        held.append(connection)
    while (waiting := json.loads(asking.ask("/waiting", b"{}"))) < waiters:
        assert time.monotonic() < began + PATIENCE, f"{waiting} of {waiters} wait"
        time.sleep(0.1)
    spent = time.monotonic() - began
    time.sleep(3)  # some heartbeats
    assert json.loads(asking.ask("/waiting", b"{}")) == waiters
    used = _megabytes(pid)
    for connection in held:
        connection.close()
    while json.loads(asking.ask("/waiting", b"{}")):
        assert time.monotonic() < began + 2 * PATIENCE, "they are still in the queue"
        time.sleep(0.1)
    asking.close()
    return Row(
        f"{waiters:,} requests that wait: memory",
        f"{used:.0f} MB",
        f"before {before:.0f} MB, all in after {spent:.1f} s",
        None,
        f"≤ {MOST_MB} MB",
        used <= MOST_MB,
        {"before": before, "used": used, "seconds": spent},
    )


def _megabytes(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def _raise_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# The processes beside.


def _serve(redis_port: int) -> None:
    import os
    import threading

    from holdfast.service import Settings
    from holdfast.service.answers import Application, Receive, Scope, Send
    from holdfast.service.app import App, create_app
    from holdfast.service.server import listen, serve

    apps: list[App] = []

    def echoing(inner: Application) -> Application:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] not in ("/echo", "/waiting"):
                await inner(scope, receive, send)
                return
            body = (await receive())["body"]
            if scope["path"] == "/waiting":
                body = b"%d" % apps[0].service.waiting
            headers = [(b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        return app

    settings = Settings(url=f"redis://127.0.0.1:{redis_port}/0")
    apps.append(create_app(settings, middleware=[echoing]))
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]

    def leave() -> None:
        sys.stdin.read()  # the parent has closed it
        os._exit(0)

    threading.Thread(target=leave, daemon=True).start()
    serve(apps[0], listener, lambda: say({"port": port, "pid": os.getpid()}))


def _listen(port: int, number: int) -> None:
    """Opens streams of events, reads them, and tells when all have begun."""
    _raise_limit()
    selector = selectors.DefaultSelector()
    for _ in range(number):
        stream = socket.create_connection(("127.0.0.1", port))
        stream.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        selector.register(stream, selectors.EVENT_READ, [b""])
    selector.register(sys.stdin, selectors.EVENT_READ)
    ready = 0
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(65536)
            if key.data:
                key.data[0] += data
                if b"event: ready" in key.data[0]:
                    key.data.clear()
                    ready += 1
                    if ready == number:
                        say("ready")


if __name__ == "__main__":
    child: dict[str, Callable[..., Any]] = {"serve": _serve, "listen": _listen}
    child[sys.argv[1]](*map(int, sys.argv[2:]))
