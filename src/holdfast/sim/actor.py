"""A client in a run with faults: it takes locks, uses them, and gives them back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .. import aio
from ..errors import LockError
from .checker import EXCLUSION, Grant
from .kinds import ELECTION, LOCK, NAMES, Wanted, Wish, draw_kind, wish_for
from .process import Process

if TYPE_CHECKING:
    from .world import World

EXPECTED = (LockError, TimeoutError)
"""Errors with which a call may end while there are faults."""


class Actor:
    """A client that takes locks, uses them, gives them back, or is interrupted while it does."""

    def __init__(self, world: World, process: Process, ready: asyncio.Future[None]) -> None:
        self._world = world
        self._loop = world.loop
        self._random = world.loop.random.random
        self._checker = world.checker
        self._ready = ready
        self.process = process
        self.opened = world.loop.create_future()
        self._healed = world.loop.create_future()
        self._task = process.spawn(self._run())

    def _record(self, text: str, *args: object) -> None:
        self._world.trace.add(self.process.name, text, *args)

    async def finish(self, limit: float) -> None:
        """Lets the client take the lock once more after everything has healed, and close."""
        if not self._healed.done():
            self._healed.set_result(None)
        done, _ = await asyncio.wait({self._task}, timeout=limit)
        if not done:
            self._checker.report(
                f"{self.process.name} made no progress in {limit:g} s after healing"
            )
        elif self._task.exception() is not None:
            self._checker.report(f"{self.process.name} ended with {self._task.exception()!r}")

    async def _run(self) -> None:
        locks = aio.connect(self._world.plan.url, **self._world.plan.options)
        while not await self._try_to_open(locks):
            pass
        self.opened.set_result(None)
        await self._ready
        for _ in range(self._world.plan.turns):
            if self._healed.done():
                break
            await asyncio.sleep(self._random() * 1.2 * self._world.plan.pace)
            await self._turn(locks)
        await self._healed
        while not await self._try_after_healing(locks):
            pass
        await locks.close()

    async def _try_to_open(self, locks: aio.Locks) -> bool:
        try:
            await locks._session()
        except EXPECTED as error:  # where there are faults from the start
            self._record("cannot connect: %s", error)
            return False
        return True

    async def _try_after_healing(self, locks: aio.Locks) -> bool:
        try:
            lease = await locks.lock("x", ttl=self._world.plan.ttls[1]).acquire()
            self._record("gets 'x' as %d after healing", lease.token)
            await lease.release()
        except EXPECTED as error:
            self._record("did not get it after healing: %s", error)
            await asyncio.sleep(0.1 + self._random() * 0.1)
            return False
        return True

    async def _turn(self, locks: aio.Locks) -> None:
        draw = self._random
        ttl = self._draw_ttl()
        asked_at = self._loop.now
        renew = draw() < 0.6
        wish = self._draw_wish(locks, ttl, renew)
        name, lock = wish.name, wish.lock
        timeout = (None, 0.0, 1.0, 4.0)[int(draw() * 4)]
        self._record("asks for %r", name)
        try:
            if draw() < 0.15:
                obtained = await self._acquire_or_cancel(lock, timeout)
                if obtained is None:
                    return
                lease, granted_at = obtained
            else:
                lease, granted_at = await self._acquire(lock, timeout)
        except EXPECTED as error:
            self._record("does not get %r: %s", name, error)
            return
        client = self.process.name
        grant = self._checker.add_grant(wish, client, lease, asked_at, granted_at)
        self._record("holds %r as %d", name, lease.token)
        await self._use(lease, grant)
        if self._world.passes_on and self._world.mixed and lease.held and draw() < 0.3:
            lease, grant = await self._pass_on(locks, wish, lease, grant, renew)
        if renew or wish.kind == ELECTION or draw() < 0.7:
            try:
                freed = await lease.release()
                self._record("released %r: %s", name, freed)
            except EXPECTED as error:
                self._record("could not release %r: %s", name, error)
        else:
            self._record("lets %r run out", name)
            await lease.wait_lost()
        if not lease.held:
            grant.ended_at = self._loop.now

    async def _pass_on(
        self, locks: aio.Locks, wish: Wish, lease: aio.Lease, grant: Grant, renew: bool
    ) -> tuple[aio.Lease, Grant]:
        """Exports the lease, adopts it again and uses it, as another process would.

        Returns what is to be given back then: if it fails, the lease as it was.
        """
        try:
            exported = await lease.export()
            grant.ended_at = asked_at = self._loop.now
            await asyncio.sleep(self._random() * 0.1 * self._world.plan.pace)
            adopted, granted_at = await self._adopt_once(locks, exported, renew)
        except EXPECTED as error:
            self._record("could not pass %r on: %s", wish.name, error)
            return lease, grant
        client = f"{self.process.name} as heir"
        grant = self._checker.add_grant(wish, client, adopted, asked_at, granted_at)
        self._record("adopted %r as %d", wish.name, adopted.token)
        await self._use(adopted, grant)
        return adopted, grant

    async def _adopt_once(
        self, locks: aio.Locks, exported: str, renew: bool
    ) -> tuple[aio.Lease, float]:
        """Adopts the lease; sometimes two try to do so at once, and one of them must not succeed."""
        heirs = 2 if self._random() < 0.3 else 1
        attempts = (self._adopt(locks, exported, renew) for _ in range(heirs))
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        adopted = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        if not adopted:
            (error, *_) = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            raise error
        if len(adopted) > 1 and self._checker.exclusion_promised:
            tokens = " and ".join(str(lease.token) for lease, _ in adopted)
            self._checker.report(f"one lease was adopted twice, as {tokens}", EXCLUSION)
        for lease, _ in adopted[1:]:
            await lease.release()
        return adopted[0]

    async def _adopt(self, locks: aio.Locks, exported: str, renew: bool) -> tuple[aio.Lease, float]:
        """Returns the adopted lease and the moment of its grant, as `_acquire` does."""
        adopted = await locks.adopt(exported, renew=renew)
        return adopted, self._loop.now

    def _draw_ttl(self) -> float:
        shortest, longest = self._world.plan.ttls
        return shortest + self._random() * (longest - shortest)

    def _draw_wish(self, locks: aio.Locks, ttl: float, renew: bool) -> Wish:
        """Returns the lock to take next: in some runs, of any kind."""
        kind = LOCK
        if self._world.mixed:
            kind = draw_kind(self._random)
        name = NAMES[kind]
        if kind == LOCK and self._random() < 0.25:
            name = "y"
        return wish_for(kind, name, locks, ttl, renew)

    async def _acquire(self, lock: Wanted, timeout: float | None) -> tuple[aio.Lease, float]:
        """Returns the lease and the moment of its grant.

        The moment is taken here, because the client may be paused between this task and the next.
        """
        lease = await lock.acquire(timeout)
        return lease, self._loop.now

    async def _acquire_or_cancel(
        self, lock: Wanted, timeout: float | None
    ) -> tuple[aio.Lease, float] | None:
        """Acquires the lock, but may cancel that soon, at whatever await it is by then."""
        task = asyncio.get_running_loop().create_task(self._acquire(lock, timeout))
        await asyncio.wait({task}, timeout=(0.0, 0.001, 0.5)[int(self._random() * 3)])
        if not task.done():
            self._record("is cancelled")
            task.cancel()
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()

    async def _renew(self, lease: aio.Lease) -> None:
        """Renews the lease, perhaps for longer or shorter than before."""
        ttl = self._draw_ttl() if self._random() < 0.7 else None
        try:
            await lease.renew(ttl)
            self._record("renewed %r for %.3f s", lease.name, lease.ttl)
        except EXPECTED as error:
            self._record("could not renew %r: %s", lease.name, error)

    async def _use(self, lease: aio.Lease, grant: Grant) -> None:
        """Writes to the register a few times, as a holder would."""
        draw = self._random
        heedless = self._world.plan.heedless
        for _ in range(1 + int(draw() * 4)):
            if lease.held:
                self._checker.note_held(grant, self._loop.now)
            elif not heedless:
                self._record("has lost %r", grant.lock)
                break
            # Between the check and the write there is always a moment; sometimes a long one.
            late = draw() * (0.002 if draw() < 0.8 else 2.0)
            if grant.writes:
                write = self._checker.write
                self._loop.after(late, self._world.register, write, grant, not heedless)
            if self._world.mixed and draw() < 0.15:
                await self._renew(lease)
            await asyncio.sleep(draw() * 0.5 * self._world.plan.pace)
        if lease.held:
            self._checker.note_held(grant, self._loop.now)
