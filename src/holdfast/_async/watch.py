"""Watching the locks of a store from outside: `locks.watch()`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from .. import checks
from .._runtime.aio import Signal
from ..clock import system_clock
from ..entries import HEARTBEAT
from ..errors import BackendUnavailable
from ..model import LockState
from ..watching import REACHED, UNREACHABLE, Sighting, sightings

if TYPE_CHECKING:
    from .manager import Locks
    from .session import Session


async def watch(locks: Locks, prefix: str, every: float | None) -> AsyncGenerator[Sighting, None]:
    """Yields what is seen of the locks, by a look at the store `every` so many seconds."""
    checks.prefix(prefix)
    interval = None if every is None else checks.ttl(every, "every")
    session: Session | None = None
    before: Sequence[LockState] = ()
    reachable = True
    while True:
        try:
            session = session or await locks._session()
            session.check_open()
            states = await locks.list(prefix)
        except BackendUnavailable as error:
            if session is not None:
                session.check_open()
            if reachable:
                reachable = False
                yield Sighting(UNREACHABLE, detail=str(error))
        else:
            if not reachable:
                reachable = True
                yield Sighting(REACHED)
            for sighting in sightings(before, states):
                yield sighting
            before = states
        clock = system_clock() if session is None else session.clock
        usual = HEARTBEAT if session is None else session.heartbeat
        await Signal(clock).wait(clock.now() + (interval or usual))
