"""Health: does the service run, and does its store answer?"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from ..errors import LockError
from .answers import Answer
from .call import Call
from .problems import Problem
from .store import Store

FRESH = 0.5
"""Seconds for which the store's last answer counts: whoever asks need not be known."""
PROBE = "holdfast:readyz"
"""A lock that nobody takes, which the store is asked about."""


async def health(call: Call) -> Answer:
    """Tells that the service runs."""
    return Answer(200, {"status": "ok"})


async def readiness(call: Call) -> Answer:
    """Tells whether the service can be asked for locks."""
    service = call.service
    if service.stopping:
        raise Problem("stopping", "the service is stopping")
    async with service.probing:  # however many ask, the store is asked once
        at, error = service.probed
        if monotonic() >= at + FRESH:
            error = await _probe(service.stores.values())
            service.probed = monotonic(), error
    if error is not None:
        raise error
    return Answer(200, {"status": "ok"})


async def _probe(stores: Iterable[Store]) -> LockError | None:
    """Returns the error of the first store that does not answer; None if all do."""
    try:
        for store in stores:
            await store.inspect(PROBE)
    except LockError as error:
        return error
    return None
