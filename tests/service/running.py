"""A lock service that runs, on a socket of its own, for the tests."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from holdfast.service import Settings
from holdfast.service.app import App, create_app
from holdfast.service.server import Server, listen, where

LIMIT = 60.0
"""Seconds after which something that should happen counts as not happening."""
NAMESPACES = ("first", "second")


def eventually(happened: Callable[[], Any], what: str = "", limit: float = LIMIT) -> Any:
    """Waits for a true answer, and returns it."""
    give_up = time.monotonic() + limit
    while not (answer := happened()):
        assert time.monotonic() < give_up, f"not within {limit} s: {what or happened}"
        time.sleep(0.01)
    return answer


class Api:
    """The requests to one service, each on a connection that may be used again."""

    def __init__(self, url: str, app: App | None = None) -> None:
        self.url = url
        self.app = app
        """The application, if it runs in this process."""
        self.http = httpx.Client(base_url=url, timeout=LIMIT, limits=httpx.Limits())

    def post(self, path: str, body: object = None, **options: Any) -> httpx.Response:
        return self.http.post(path, json={} if body is None else body, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(path, **options)

    def lock(self, name: str, verb: str, **body: Any) -> httpx.Response:
        return self.post(f"/v1/locks/{name}/{verb}", body)

    def acquire(self, name: str, **body: Any) -> dict[str, Any]:
        """Returns the grant of a lock that is free."""
        answer = self.lock(name, "acquire", **body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v1/locks/{name}").json()
        return found

    def waiters(self, name: str) -> list[str]:
        return [one["owner"] for one in self.state(name)["waiters"]]

    def holders(self, name: str) -> list[str]:
        return [one["owner"] for one in self.state(name)["holders"]]

    def later(self, name: str, **body: Any) -> Later:
        """Asks for a lock in a thread, on a connection of its own."""
        return Later(
            lambda: httpx.post(f"{self.url}/v1/locks/{name}/acquire", json=body, timeout=LIMIT)
        )


class Later:
    """An answer that is still to come."""

    def __init__(self, ask: Callable[[], httpx.Response]) -> None:
        self._answer: httpx.Response | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], httpx.Response]) -> None:
        try:
            self._answer = ask()
        except BaseException as error:
            self._answer = error

    @property
    def ended(self) -> bool:
        """Whether there is an answer, or none is to come."""
        return self._answer is not None

    def answer(self) -> httpx.Response:
        self._thread.join(LIMIT)
        if isinstance(self._answer, BaseException):
            raise self._answer
        assert self._answer is not None, "there was no answer"
        return self._answer


@contextmanager
def running(url: str, app: App | None = None, **settings: Any) -> Iterator[tuple[Api, App]]:
    """Runs a service in a thread of this process."""
    if app is None:
        app = create_app(Settings(url=url, namespaces=NAMESPACES, **settings))
    listener = listen("127.0.0.1", 0)
    started = threading.Event()
    server = Server(app, started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    address = where(listener)
    thread.start()
    api = Api(address, app)
    try:
        assert started.wait(LIMIT)
        yield api, app
    finally:
        api.http.close()
        server.should_exit = True
        thread.join(LIMIT)
        assert not thread.is_alive(), "the service does not stop"


class Process:
    """A `holdfast serve` in a process of its own."""

    def __init__(self, *words: str, environment: Mapping[str, str] | None = None) -> None:
        kept = {name: value for name, value in os.environ.items() if "HOLDFAST" not in name}
        self._apis: list[Api] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
        )

    def api(self) -> Api:
        """Returns the requests to it, once it says where it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " at http://" in line, (line, self.process.communicate(timeout=LIMIT))
        self._apis.append(Api(line.rpartition(" at ")[2].strip()))
        return self._apis[-1]

    @contextmanager
    def nothing_to_open(self) -> Iterator[None]:
        """Lets it have no more descriptors than it has now."""
        pid = self.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        present = max(int(number) for number in os.listdir(f"/proc/{pid}/fd")) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (present, before[1]))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    def end(self) -> tuple[int, str, str]:
        """Waits for its end; returns the exit status and what it wrote."""
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, err

    def close(self) -> None:
        for api in self._apis:
            api.http.close()
        self.process.kill()
        self.process.wait(LIMIT)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Sse:
    """A stream of server-sent events, read in a thread."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.events: list[tuple[str, str, Any]] = []
        """The name, id and data of each."""
        self.ended = threading.Event()
        self.error: Exception | None = None
        """The error that ended it, if one did."""
        self._client = httpx.Client(timeout=httpx.Timeout(LIMIT, read=None))
        self._url, self._headers = url, dict(headers or {})
        self._response: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._read()
        except (httpx.HTTPError, httpx.StreamError) as error:
            self.error = error
        self.ended.set()

    def _read(self) -> None:
        with self._client.stream("GET", self._url, headers=self._headers) as response:
            self._response = response
            fields: dict[str, str] = {}
            for line in response.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    data = json.loads(fields["data"])
                    self.events.append((fields.get("event", ""), fields.get("id", ""), data))
                    fields = {}

    def find(self, kind: str, **wanted: Any) -> tuple[str, str, Any]:
        """Waits for an event of that kind whose data has these values."""

        def found() -> tuple[str, str, Any] | None:
            ended = self.ended.is_set()
            for one in self.events:
                if one[0] == kind and all(one[2].get(k) == v for k, v in wanted.items()):
                    return one
            assert not ended, f"the stream ended by {self.error!r} after {self.events}"
            return None

        result: tuple[str, str, Any] = eventually(found, f"{kind} {wanted} in {self.events}")
        return result

    def close(self) -> None:
        # The socket itself: httpx does not interrupt a thread that reads.
        if self._response is not None:
            stream = self._response.extensions["network_stream"]
            with suppress(OSError):
                stream.get_extra_info("socket").shutdown(2)
        self._thread.join(LIMIT)
        self._client.close()
