"""The work of a leader in asyncio: stand for election, work while we lead, and stand by again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic

from .. import ConfigError, LeaseLost, LockError
from ..aio import Election, Locks, Term
from ..lifecycle import LOST

log = logging.getLogger(__name__)

Work = Callable[[Term], Awaitable[object]]
"""A leader's work: it is given its term, and cancelled when that is lost."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds until we stand for election again after a failure; twice as long each time."""
LONG_TERM = 60.0
"""Seconds of a term after which a failure counts as the first one again."""


@asynccontextmanager
async def leading(
    locks: Locks, name: str, work: Work, *, value: str | None = None, ttl: float = 30.0
) -> AsyncIterator[None]:
    """Runs `work(term)` in a task while we lead, and stands by otherwise; stops it at the end.

    If the term is lost, the work is cancelled, and we stand by for the next one. If the work raises
    anything else (also the `CancelledError` of a task that it waited for), that is logged, we resign,
    and stand for election again after a pause. If it returns, it is done, and we resign for good.
    At the end the work is cancelled and waited for; then the term is released.
    """
    if not callable(work):
        raise ConfigError(f"a leader's work is an async function, not {work!r:.80}", name=name)
    election = locks.election(name, value, ttl=ttl)
    task = asyncio.create_task(_lead(election, work), name=f"leading {name!r}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])  # if we are cancelled meanwhile, that is raised here
        if not task.cancelled():
            task.result()


async def _lead(election: Election, work: Work) -> None:
    pause = FIRST_PAUSE
    while not _stopped():
        try:
            term = await election.campaign()
        except LockError as error:
            log.warning("cannot stand for election; trying again in %g s: %s", pause, error)
            pause = await _rest(pause)
            continue
        began = monotonic()
        try:
            async with term:
                log.info("leading %r, with token %d", term.name, term.token)
                await work(term)
                return
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _stopped():
                raise
            if isinstance(error, LeaseLost) and error.owner == term.owner and term.state == LOST:
                log.warning("standing by for the next term: %s", error)
                pause = FIRST_PAUSE
                continue
            # Also a cancelled task that the work waited for, and the loss of another lock.
            log.exception("the leader of %r has failed, and resigned", term.name)
        if monotonic() - began >= LONG_TERM:
            pause = FIRST_PAUSE
        if not _stopped():
            pause = await _rest(pause)


def _stopped() -> bool:
    """Tells whether somebody has cancelled this task itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _rest(pause: float) -> float:
    """Waits for `pause` seconds; returns how long the next pause is."""
    await asyncio.sleep(pause)
    return min(2 * pause, LONGEST_PAUSE)
