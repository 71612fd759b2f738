"""A worker of a run: it asks for locks, holds them, writes to the registers, gives them back.

It does what a careful program does: before each write it looks whether it still holds the lock. Then it
takes a moment, as every program does, and writes with its token. What happens in that moment is what
the fence is for.

A time that counts for the worker is taken before it looks, and one that counts against it after it was
told: so two holders overlap in the history only if they certainly overlapped.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from ..history import History
from ..job import Job
from ..pulse import Pulse

REST = 0.05
"""Seconds after an attempt that failed."""
LONGEST_LIFE = 1_000_000
"""More than a worker's attempts and writes: their numbers go on rising when it is started again."""


class Held(Protocol):
    """A lock that is held, by whatever library: our leases are like this by themselves."""

    @property
    def token(self) -> int | None: ...

    @property
    def held(self) -> bool: ...

    def on_lost(self, callback: Callable[[Any], None]) -> None: ...

    async def release(self) -> object: ...


class Client(Protocol):
    """A library, as a worker uses it."""

    async def acquire(self, name: str, ttl: float, timeout: float) -> Held:
        """Returns the lock once it is held; raises an error otherwise."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class Send(Protocol):
    """Sends a write to the registers; nothing else in the process waits for that."""

    async def __call__(self, lock: str, token: int | None, turn: int, number: int) -> None: ...


class Contender:
    """One worker. `send` takes a write to the registers; `ended` says whether it is to stop."""

    def __init__(
        self,
        job: Job,
        client: Client,
        history: History,
        pulse: Pulse,
        send: Send,
        ended: Callable[[], bool],
    ) -> None:
        self._job = job
        self._client = client
        self._history = history
        self._pulse = pulse
        self._send = send
        self._ended = ended
        self._chance = random.Random(f"{job.seed}/{job.life}")
        self._attempts = self._writes = job.life * LONGEST_LIFE

    async def run(self) -> None:
        """Contends until it is to stop, and closes the client."""
        self._note("start")
        try:
            while not self._ended():
                await self._attempt()
                await self._client.sleep(self._chance.random() * self._job.rest)
        finally:
            try:
                await self._client.close()
                text = "in order"
            except Exception as error:
                text = f"could not close: {describe(error)}"
        self._note("stop", text=text)

    async def _attempt(self) -> None:
        job = self._job
        self._attempts += 1
        owner = f"{job.lane}-{self._attempts}"
        lock = self._chance.choice(job.locks)
        self._note("ask", lock=lock, owner=owner)
        try:
            lease = await self._client.acquire(lock, job.ttl, job.patience)
        except Exception as error:
            self._note("fail", lock=lock, owner=owner, text=describe(error))
            await self._client.sleep(REST)
            return
        ttl = getattr(lease, "ttl", job.ttl)
        granted = self._note("grant", lock=lock, owner=owner, token=lease.token, ttl=ttl)
        turn = int(granted * 1e6)
        told: list[float] = []

        def tell(_: Any = None) -> None:
            if not told:
                stalled = self._pulse.longest()
                told.append(
                    self._note("told", owner=owner, token=lease.token, text="lost", stalled=stalled)
                )

        lease.on_lost(tell)
        await self._use(lease, lock, owner, turn)
        if not lease.held:
            tell()
            # A lease that was lost needs no release; the store may still have what is left of it.
        self._note("release", owner=owner, token=lease.token)
        try:
            freed = await lease.release()
            text = "it had ended already" if freed is False else "released"
        except Exception as error:
            text = describe(error)
        self._note("end", owner=owner, token=lease.token, text=text)

    async def _use(self, lease: Held, lock: str, owner: str, turn: int) -> None:
        """Writes a few times for as long as the lease is held."""
        chance, job = self._chance.random, self._job
        most = 3.0 if chance() >= job.long else 3.0 * job.ttl / job.hold
        rounds = 1 + int(chance() * most)
        least = self._history.now() + job.least
        while (rounds > 0 or self._history.now() < least) and not self._ended():
            rounds -= 1
            if not self._look(lease, owner):
                return
            await self._client.sleep(chance() * job.hold)
            self._writes += 1
            self._note("send", owner=owner, token=lease.token, number=self._writes)
            await self._send(lock, lease.token, turn, self._writes)
        self._look(lease, owner)

    def _look(self, lease: Held, owner: str) -> bool:
        """Tells whether the lease is held, and notes it with a time from before the look."""
        at = self._history.now()
        if not lease.held:
            return False
        self._note("seen", at=at, owner=owner, token=lease.token)
        return True

    def _note(self, kind: str, at: float | None = None, **fields: Any) -> float:
        return self._history.add(self._job.lane, kind, at, **fields)


def describe(error: BaseException) -> str:
    """Returns an error in one short line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
