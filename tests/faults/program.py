"""The program that a test leads in another process: `python -m faults.program WORLD URL SETTINGS`.

It reads one command per line, does each beside the others, and answers when it is done. The verbs
are written once for both worlds: `settle` awaits what has to be awaited. What not all need is
imported late, since very many of these are started.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def settle(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


@asynccontextmanager
async def inside(thing: Any) -> AsyncIterator[Any]:
    if hasattr(thing, "__aenter__"):
        async with thing as entered:
            yield entered
    else:
        with thing as entered:
            yield entered


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never has to wait for a loop, because all it calls blocks."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("blocking code awaited something")


class Program:
    def __init__(self, world: str, url: str, options: dict[str, Any]) -> None:
        self.world = world
        if world == "aio":
            from asyncio import Event

            import holdfast.aio

            self.new_event: Any = Event
            self.locks: Any = holdfast.aio.connect(url, **options)
        else:
            import holdfast

            self.new_event = threading.Event
            self.locks = holdfast.connect(url, **options)
        self.leases: dict[str, Any] = {}
        self.doors: dict[str, Any] = {}
        self._writing = threading.Lock()

    # Verbs.

    async def acquire(self, key: str, name: str, timeout: float | None, **settings: Any) -> Any:
        lease = await settle(self.locks.lock(name, **settings).acquire(timeout=timeout))
        at = now()
        self.leases[key] = lease
        return {"token": lease.token, "at": at, "remaining": lease.remaining()}

    async def attempt(self, key: str, name: str, timeout: float = 0.0, **settings: Any) -> Any:
        lease = await settle(self.locks.lock(name, **settings).try_acquire(timeout=timeout))
        if lease is None:
            return None
        self.leases[key] = lease
        return {"token": lease.token, "at": now(), "remaining": lease.remaining()}

    async def look(self, key: str) -> Any:
        lease = self.leases[key]
        return {
            "held": lease.held,
            "remaining": lease.remaining(),
            "state": lease.state,
            "token": lease.token,
        }

    async def ensure(self, key: str) -> None:
        self.leases[key].ensure()

    async def renew(self, key: str) -> None:
        await settle(self.leases[key].renew())

    async def release(self, key: str) -> bool:
        released: bool = await settle(self.leases[key].release())
        return released

    async def on_lost(self, key: str) -> None:
        self.leases[key].on_lost(lambda lease: self.say(note="lost", key=key, held=lease.held))

    async def wait_lost(self, key: str, timeout: float | None = None) -> bool:
        lost: bool = await settle(self.leases[key].wait_lost(timeout))
        return lost

    async def body(self, key: str, name: str, **settings: Any) -> str:
        """Enter, say so, and stay until told to leave."""
        door = self.doors[key] = self.new_event()
        async with inside(self.locks.lock(name, **settings)) as lease:
            self.leases[key] = lease
            self.say(note="entered", key=key, token=lease.token)
            try:
                await settle(door.wait())
            except BaseException as error:
                self.say(note="stopped", key=key, by=type(error).__name__)
                raise
        return "left"

    async def leave(self, key: str) -> None:
        self.doors[key].set()

    async def inspect(self, name: str) -> Any:
        state = await settle(self.locks.inspect(name))
        return {
            "holders": [holder.token for holder in state.holders],
            "waiters": [waiter.label.pid for waiter in state.waiters],
            "token": state.token,
        }

    async def list(self) -> Any:
        return [state.name for state in await settle(self.locks.list())]

    async def spawn(self, how: str) -> int:
        """A child that lives on: another program, which was given every descriptor there is."""
        if how == "popen":
            import subprocess

            return subprocess.Popen(["sleep", "600"], close_fds=False).pid
        if how == "posix_spawn":
            return os.posix_spawnp("sleep", ["sleep", "600"], os.environ)
        pid = os.fork()
        if pid == 0:
            os.execvp("sleep", ["sleep", "600"])
        return pid

    async def run(self, code: str) -> Any:
        """Whatever else: an expression, given this program as `me`."""
        return await settle(eval(code, {"me": self, "now": now, "os": os, "time": time}))

    async def close(self) -> None:
        await settle(self.locks.close())

    # Their frame.

    def say(self, **message: Any) -> None:
        line = json.dumps({"time": now(), **message}) + "\n"
        with self._writing:
            os.write(1, line.encode())

    async def handle(self, number: int, verb: str, arguments: dict[str, Any]) -> None:
        try:
            result = await getattr(self, verb)(**arguments)
        except Exception as error:
            self.say(id=number, error=type(error).__name__, text=str(error), lost=lost_at(error))
        else:
            self.say(id=number, result=result)


def lost_at(error: BaseException) -> float | None:
    at: float | None = getattr(error, "lost_at", None)
    return at


def blocking(url: str, options: dict[str, Any]) -> None:
    program = Program("blocking", url, options)

    def handle(command: dict[str, Any]) -> None:
        drive(program.handle(command["id"], command["verb"], command["arguments"]))

    for line in sys.stdin:
        threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
    program.locks.close()


async def aio(url: str, options: dict[str, Any]) -> None:
    import asyncio

    program = Program("aio", url, options)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    def begin(command: dict[str, Any]) -> None:
        work = program.handle(command["id"], command["verb"], command["arguments"])
        task = loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(begin, json.loads(line))
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=read, daemon=True).start()
    await over.wait()
    await program.locks.close()
    for task in tasks:
        task.cancel()


def main() -> None:
    world, url, settings = sys.argv[1:]
    given = json.loads(settings)
    exec(given["prelude"], {})
    if world == "aio":
        import asyncio

        asyncio.run(aio(url, given["options"]))
    else:
        blocking(url, given["options"])


if __name__ == "__main__":
    main()
