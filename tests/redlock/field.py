"""Five real nodes behind proxies, clients in processes of their own, and the simulator's checker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import holdfast
from holdfast.chaos.servers.processes import freeze, thaw
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redlock import url_of
from holdfast.chaos.servers.stepped import SteppedServer
from holdfast.sim.checker import Checker, Grant
from holdfast.sim.kinds import Wish

TESTS = Path(__file__).parent.parent
ACTORS = [TESTS / world / "redlock" / "actor.py" for world in ("_sync", "_async")]
LIMIT = 60.0
MAX_TTL = 2.0
OPTIONS: dict[str, Any] = {"max_ttl": MAX_TTL, "node_timeout": 0.3}


def boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NoTrace:
    """A trace that drops all lines; the tests read the checker's violations."""

    def add(self, subject: str, text: str, *args: object) -> None:
        return None


class Watcher:
    """A client in the test's own process."""

    name = "watcher"

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events


class Actor(Watcher):
    def __init__(self, url: str, seed: int, *rest: str) -> None:
        super().__init__([])
        program = ACTORS[seed % len(ACTORS)]  # in turn one in asyncio, and one in blocking code
        self.name = f"client{seed}"
        self._process = subprocess.Popen(
            [sys.executable, str(program), url, json.dumps(OPTIONS), str(seed), *rest],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def count(self, what: str) -> int:
        return sum(event["what"] == what for event in list(self.events))

    def alive(self) -> bool:
        return self._process.poll() is None

    def pause(self) -> None:
        freeze(self._process.pid)

    def resume(self) -> None:
        thaw(self._process.pid)

    def finish(self) -> None:
        """Lets the client get every lock once more, and waits for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        assert self._process.wait(LIMIT) == 0, self.name
        self._reading.join()
        assert self.count("again") == 2, self.name

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class Field:
    def __init__(self, clients: int, *rest: str) -> None:
        self._fenced = not rest
        self.nodes: list[SteppedServer] = []
        self.proxies: list[Proxy] = []
        self.actors: list[Actor] = []
        self.checker = Checker(NoTrace())  # type: ignore[arg-type]
        try:
            for _ in range(5):
                self.nodes.append(SteppedServer("--appendonly", "no"))
                self.proxies.append(Proxy(self.nodes[-1].port))
            url = url_of([proxy.port for proxy in self.proxies])
            self.locks = holdfast.connect(url, **OPTIONS)
            self.locks.inspect("x")
            self.actors += [Actor(url, number + 1, *rest) for number in range(clients)]
            self.goes_on(1)
        except BaseException:
            self.close()
            raise

    def until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + LIMIT
        while not condition():
            assert all(actor.alive() for actor in self.actors), f"a client died before {what}"
            assert time.monotonic() < limit, f"{what}: not within {LIMIT:g} s"
            time.sleep(0.01)

    def goes_on(self, grants: int = 3) -> None:
        """Waits for so many more grants, to whichever clients."""
        wanted = self._granted() + grants
        self.until(lambda: self._granted() >= wanted, "grants")

    def _granted(self) -> int:
        return sum(actor.count("granted") for actor in self.actors)

    def all_vote(self) -> None:
        def vote() -> bool:
            try:
                return self.locks.inspect("x").out == ()
            except holdfast.BackendUnavailable:
                return False

        self.until(vote, "all nodes vote")

    def take(self, name: str) -> tuple[float, float, int]:
        """Takes a lock as one more client. Returns when it was requested and granted, and the token."""
        asked = boot_time()
        with self.locks.lock(name, ttl=1.5, timeout=LIMIT) as lease:
            return asked, boot_time(), lease.token

    def judge(self, *others: Watcher) -> list[str]:
        """Lets all clients get the locks again, and returns what the checker finds in their events."""
        for actor in self.actors:
            actor.finish()
        everybody: list[Watcher] = [*self.actors, *others]
        events = [(event["at"], one.name, event) for one in everybody for event in one.events]
        grants: dict[tuple[str, str, int], Grant] = {}
        unused: Any = None
        for at, name, event in sorted(events, key=lambda one: one[0]):
            key = (name, event.get("lock", ""), event.get("token", 0))
            match event["what"]:
                case "granted":
                    wish = Wish("lock", event["lock"], unused)
                    lease: Any = SimpleNamespace(token=event["token"], slot=None)
                    grants[key] = self.checker.add_grant(wish, name, lease, event["asked"], at)
                case "seen":
                    self.checker.note_held(grants[key], at)
                case "write":
                    self.checker.write(grants[key], self._fenced)
                case "ended":
                    grants[key].ended_at = at
        self.checker.compare_grants()
        return self.checker.violations

    def close(self) -> None:
        for actor in self.actors:
            actor.stop()
        with suppress(AttributeError):
            self.locks.close()
        for proxy in self.proxies:
            proxy.close()
        for node in self.nodes:
            node.stop()
