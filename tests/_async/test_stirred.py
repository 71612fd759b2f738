"""The embedded store's hint that a release is near: lost, false, late or in a flood it harms nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import aio as holdfast
from holdfast._runtime import aio as runtime
from holdfast._runtime.aio import Poller, Signal
from holdfast.clock import BootClock
from worlds.aio import Job, eventually

HOLDER = """
import sys, holdfast
locks = holdfast.connect(sys.argv[1])
lease = locks.lock("x").acquire()
store = locks._session().backend._store
print("held", flush=True)
for line in sys.stdin:
    if line == "release\\n":
        store.active = 0.0
        lease.release()
    elif line == "acquire\\n":
        lease = locks.lock("x").acquire()
    else:
        for _ in range(int(line)):
            store._presence.stir()
    print("done", flush=True)
"""


class Holder:
    """Another process that holds "x"."""

    def __init__(self, url: str) -> None:
        program = [sys.executable, "-c", HOLDER, url]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True)
        self._hear("held")

    def do(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        self._hear("done")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _hear(self, what: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == what + "\n"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def holder(url: str) -> Iterator[Holder]:
    made = Holder(url)
    yield made
    made.end()


def spins(locks: holdfast.Locks) -> list[None]:
    """Grows by one each time that somebody stays awake."""
    assert locks._live is not None
    poller = locks._live.backend._poller  # type: ignore[attr-defined]
    found: list[None] = []
    expect = poller.expect

    def counted(look: object) -> None:
        found.append(None)
        expect(look)

    poller.expect = counted
    return found


async def waiting(locks: holdfast.Locks) -> bool:
    """Whether somebody waits, and watches the holder."""
    assert locks._live is not None
    return bool(locks._live.backend._watches)  # type: ignore[attr-defined]


async def test_who_waits_is_told_before_it_is_released(url: str, holder: Holder) -> None:
    async with holdfast.connect(url) as locks:
        job = Job(locks.lock("x").acquire)
        await eventually(lambda: locks._live is not None)
        told = spins(locks)
        await eventually(lambda: waiting(locks))
        holder.do("release")
        lease = await job.result()
        assert lease.held
        assert told
        await lease.release()


async def test_a_hint_for_nothing(url: str, holder: Holder) -> None:
    async with holdfast.connect(url) as locks:
        job = Job(locks.lock("x").acquire)
        await eventually(lambda: locks._live is not None)
        told = spins(locks)
        await eventually(lambda: waiting(locks))
        for _ in range(5):
            told.clear()
            holder.do("1")
            await eventually(lambda: told)
        assert not job.done()
        state = await locks.inspect("x")
        assert len(state.holders) == len(state.waiters) == 1
        holder.do("release")
        assert (await job.result()).held


async def test_a_flood_of_hints(url: str, holder: Holder) -> None:
    async with holdfast.connect(url) as locks:
        job = Job(locks.lock("x").acquire)
        await eventually(lambda: locks._live is not None)
        await eventually(lambda: waiting(locks))
        holder.do("100000")
        assert not job.done()
        holder.do("release")
        assert (await job.result()).held


async def test_a_hint_for_a_waiter_that_has_left(url: str, holder: Holder) -> None:
    async with holdfast.connect(url) as locks:
        async with holdfast.connect(url) as leaving:
            job = Job(leaving.lock("x").acquire)
            await eventually(lambda: leaving._live is not None)
            await eventually(lambda: waiting(leaving))
            holder.do("1")
        assert isinstance(await job.error(), holdfast.LockError)
        assert not (await locks.inspect("x")).waiters
        holder.do("1")
        holder.do("release")
        lease = await locks.lock("x").acquire(timeout=10.0)
        await lease.release()
        holder.do("acquire")
        assert await locks.lock("x").try_acquire() is None


async def test_a_hint_while_it_is_closed(url: str, holder: Holder) -> None:
    locks = holdfast.connect(url)
    job = Job(locks.lock("x").acquire)
    await eventually(lambda: locks._live is not None)
    await eventually(lambda: waiting(locks))
    holder.do("100")
    await locks.close()
    assert isinstance(await job.error(), holdfast.LockError)
    holder.do("release")


async def test_the_holder_dies_after_its_hint(url: str, holder: Holder) -> None:
    async with holdfast.connect(url, heartbeat=30.0) as locks:
        job = Job(locks.lock("x").acquire)
        await eventually(lambda: locks._live is not None)
        await eventually(lambda: waiting(locks))
        holder.do("3")
        holder.end()
        assert (await job.result()).held  # at once: no heartbeat comes within the test's patience


async def test_nobody_stays_awake_for_long_nor_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written to the pipe: the first hint is good for a moment, the next come too soon."""
    monkeypatch.setattr(runtime, "REST", 1000.0)
    clock = BootClock()
    poller = Poller("test")
    signal = Signal(clock)
    read, write = os.pipe()
    looks: list[float] = []
    hints = 0

    def look() -> bool:
        looks.append(clock.now())
        return False

    def ready() -> None:
        nonlocal hints
        os.read(read, 1)
        hints += 1
        poller.expect(look)
        if looks and hints > 1000:
            signal.set()

    poller.watch(read, ready)
    os.write(write, b"\0" * 5000)
    assert await poller.attend(signal, clock.now() + 30.0)
    # One look may come late, if the machine stalls just before it; then the time is over.
    assert all(moment <= looks[0] + runtime.AWAKE + 1e-4 for moment in looks[:-1])
    poller.close()
    os.close(write)
