"""Leading other processes: each actor is a process of its own that uses the store by itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

from holdfast.chaos.servers.processes import freeze, thaw
from holdfast.stores.sqlite.gate import Gate

WORLDS = ("blocking", "aio")
LIMIT = 60.0
"""Seconds that anything here may take at the most, on however busy a machine."""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def until(condition: Callable[[], object], what: str = "it", limit: float = LIMIT) -> None:
    """Wait for a condition."""
    end = now() + limit
    while not condition():
        if now() > end:
            raise AssertionError(f"{what} did not happen within {limit:g} s")
        time.sleep(0.002)


async def reached(condition: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait for a condition, without holding up the event loop."""
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 - whatever it is, it tells nobody
            await asyncio.sleep(0.002)


class Refused(Exception):
    """The exception that the actor's call raised: `kind` is the name of its class."""

    def __init__(self, kind: str, text: str, lost_at: float | None) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text
        self.lost_at = lost_at


class Pending:
    """An answer that is to come."""

    def __init__(self, what: str, actor: Actor) -> None:
        self._what = what
        self._actor = actor
        self._answer: Queue[dict[str, Any] | None] = Queue()
        self.sent = now()
        self.time = 0.0
        """The time on the boot clock at which the actor was done."""

    def put(self, answer: dict[str, Any] | None) -> None:
        self._answer.put(answer)

    @property
    def ready(self) -> bool:
        return not self._answer.empty()

    def get(self, limit: float = LIMIT) -> Any:
        try:
            answer = self._answer.get(timeout=limit)
        except Exception:
            raise AssertionError(f"no answer to {self._what} within {limit:g} s") from None
        self._answer.put(answer)
        if answer is None:
            complaints = self._actor.complaints()
            raise AssertionError(f"the actor ended instead of answering {self._what}: {complaints}")
        self.time = answer["time"]
        if "error" in answer:
            raise Refused(answer["error"], answer["text"], answer["lost"])
        return answer["result"]

    def error(self, limit: float = LIMIT) -> Refused:
        """Returns the refusal of the call; fails if it was not refused."""
        try:
            result = self.get(limit)
        except Refused as refused:
            return refused
        raise AssertionError(f"{self._what} was not refused, but answered {result!r}")


class Actor:
    def __init__(
        self,
        world: str,
        url: str,
        prelude: str = "",
        before: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        self.world = world
        self._path = url.removeprefix("sqlite://").partition("?")[0]
        self._numbers = 0
        self._pending: dict[int, Pending] = {}
        self.notes: list[dict[str, Any]] = []
        self.killed = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until clear()
        self.process = subprocess.Popen(
            [
                *before,
                sys.executable,
                "-m",
                "faults.program",
                world,
                url,
                json.dumps({"prelude": prelude, "options": options}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(),
        )
        self.pid = self.process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, verb: str, **arguments: Any) -> Pending:
        """Ask it to do something, without waiting until it is done."""
        self._numbers += 1
        pending = self._pending[self._numbers] = Pending(f"{verb} {arguments}", self)
        command = {"id": self._numbers, "verb": verb, "arguments": arguments}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        return pending

    def ask(self, verb: str, **arguments: Any) -> Any:
        return self.send(verb, **arguments).get()

    def acquire(self, name: str, timeout: float | None = LIMIT, **settings: Any) -> Any:
        """Its grant: `token`, `at` and `remaining`. The lease's key is the lock's name."""
        return self.ask("acquire", key=name, name=name, timeout=timeout, **settings)

    def queue(self, name: str, timeout: float | None = LIMIT, **settings: Any) -> Pending:
        return self.send("acquire", key=name, name=name, timeout=timeout, **settings)

    def attempt(self, name: str, timeout: float = 0.0, **settings: Any) -> Any:
        return self.ask("attempt", key=name, name=name, timeout=timeout, **settings)

    def held(self, name: str) -> bool:
        held: bool = self.ask("look", key=name)["held"]
        return held

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """Returns the notes of that kind that the actor sent unasked."""
        return [note for note in list(self.notes) if note["note"] == kind]

    def waits(self, name: str, *waiting: Actor) -> None:
        """Until exactly these wait for the lock, in this order, as this actor sees it."""
        pids = [actor.pid for actor in waiting]
        until(lambda: self.ask("inspect", name=name)["waiters"] == pids, f"queue of {pids}")

    def kill(self) -> float:
        """Kill -9; answers when."""
        at = now()
        self.killed = True
        self.process.kill()
        return at

    def stop(self) -> float:
        """Freezes the actor and returns when it stood still.

        Nobody is inside the store's gate then: a process that is frozen inside stalls the store, which
        is declared, and has tests of its own.
        """
        gate = Gate(self._path)
        try:
            gate.enter(now() + LIMIT)
            freeze(self.pid)
        finally:
            gate.leave()
            gate.close()
        return now()

    def resume(self) -> None:
        thaw(self.pid)

    def end(self) -> None:
        """Let it end by itself, and see that it had nothing to complain about."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(LIMIT)
        complaints = self.complaints()
        assert (code, complaints) == (0, ""), f"exit status {code}: {complaints}"

    def complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def clear(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue  # a command that it died before reading
        self._errors.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "note" in message:
                self.notes.append(message)
            else:
                self._pending[message["id"]].put(message)
        for pending in list(self._pending.values()):
            if not pending.ready:
                pending.put(None)


class Stage:
    """Starts actors on one store, and sees to it that none outlives the test."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = f"{folder}/locks.db"
        self.url = f"sqlite://{self.path}"
        self._actors: list[Actor] = []

    def actor(
        self,
        world: str = "blocking",
        prelude: str = "",
        before: tuple[str, ...] = (),
        **options: Any,
    ) -> Actor:
        """Starts an actor; `before` is a command that becomes the actor by running what follows."""
        actor = Actor(world, self.url, prelude, before, **options)
        self._actors.append(actor)
        return actor

    def end(self) -> None:
        """Everybody who has not been killed ends in good order."""
        for actor in self._actors:
            if not actor.killed and actor.process.poll() is None:
                actor.end()

    def clear(self) -> None:
        for actor in self._actors:
            actor.clear()


@contextmanager
def stage(folder: str) -> Iterator[Stage]:
    made = Stage(folder)
    try:
        yield made
        made.end()
    finally:
        made.clear()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def run(module: str, *arguments: str, before: tuple[str, ...] = (), limit: float = 100.0) -> str:
    """Run one of the programs here to its end; answers what it printed."""
    command = [*before, sys.executable, "-m", f"faults.{module}", *arguments]
    process = subprocess.Popen(
        command,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, complaints = process.communicate(timeout=limit)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # it, and all that it started
            process.communicate()
    assert process.returncode == 0, f"{command} ended with {process.returncode}:\n{complaints}"
    assert complaints == ""
    return output
