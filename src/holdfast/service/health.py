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
        at, ready = service.probed
        if monotonic() >= at + FRESH:
            ready = await _answers(service.stores.values())
            service.probed = monotonic(), ready
    if not ready:
        # Not why, nor where: whoever asks need not be known.
        raise Problem(
            "unavailable", "the store does not answer; a request about a lock is told why"
        )
    return Answer(200, {"status": "ok"})


async def _answers(stores: Iterable[Store]) -> bool:
    """Tells whether all stores answer."""
    try:
        for store in stores:
            await store.inspect(PROBE)
    except LockError:
        return False
    return True
