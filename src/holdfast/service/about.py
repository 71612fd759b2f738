"""The operations that tell of the service and its store: guarantees, doctor, deadlocks, and oneself."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from ..wait_graph import Deadlock
from .answers import Answer
from .call import Call
from .problems import Problem
from .store import Store
from .views import View, participant_view

AUTO_RELEASE = "at the end of the TTL: a lease belongs to the client, wherever it is, and not to us"
"""The end of the lease of a client that died, whatever the store could know of its own clients."""
ENDS_WITH_SERVICE = (
    "at the end of the TTL, or with the service that granted it, on whose session it hangs: no other "
    "service renews it"
)
"""The end of that lease on a store whose leases hang on a session."""
EXAMINED_FOR = 10.0
"""Seconds for which the doctor's findings are told again, before the store is examined anew."""


async def guarantees(call: Call) -> Answer:
    """Tells what the store promises, and its times."""
    session = await call.store.session()
    promised: dict[str, Any] = session.backend.guarantees._asdict()
    bound = call.store.lanes.bound
    promised["auto_release"] = ENDS_WITH_SERVICE if bound else AUTO_RELEASE
    promised["safe_for"] = list(promised["safe_for"])
    promised["one_step"] = hasattr(session.backend, "acquire_all")
    promised["heartbeat"] = session.heartbeat
    promised["claim_window"] = session.claim_window
    promised["realm"] = session.realm
    promised["namespace"] = call.store.namespace
    return Answer(200, promised)


class Doctors:
    """The doctor's latest findings about each store."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, list[View]]] = {}
        self._mutex = asyncio.Lock()

    async def findings(self, store: Store) -> tuple[float, list[View]]:
        """Returns how old the findings are, in seconds, and the findings."""
        async with self._mutex:  # a store is not to be examined by many at once
            at, found = self._found.get(store.namespace, (0.0, []))
            if not at or monotonic() - at > EXAMINED_FOR:
                examined = await store.locks.doctor()
                at, found = monotonic(), [one._asdict() for one in examined]
                self._found[store.namespace] = (at, found)
            return monotonic() - at, found


async def doctor(call: Call) -> Answer:
    """Tells what stands well with the store, and what does not."""
    refuse_partial_view(call)
    age, found = await call.service.doctors.findings(call.store)
    return Answer(200, {"findings": found, "age": age})


async def deadlocks(call: Call) -> Answer:
    """Tells who waits for each other in a circle."""
    store = call.store
    prefixes = call.service.authority.prefixes(call.caller, store.namespace)
    found = [
        _deadlock_view(one)
        for one in await store.locks.deadlocks()
        if all(any(name.startswith(prefix) for prefix in prefixes) for name in one.locks)
    ]
    return Answer(200, {"deadlocks": found})


def _deadlock_view(found: Deadlock) -> View:
    cycle = []
    for wait, inner in found.steps():
        step: View = {"name": wait.name, "waiter": participant_view(wait.waiter)}
        step["blocker"] = participant_view(wait.blocker)
        if inner is not None:
            step["runs"] = participant_view(inner)
        cycle.append(step)
    return {"since": found.since, "cycle": cycle, "locks": list(found.locks)}


async def me(call: Call) -> Answer:
    """Tells the caller what it may do, and on which store."""
    await call.store.session()
    promised = call.store.guarantees
    here = {
        "store": promised.store,
        "namespace": call.store.namespace,
        "recall": promised.recall,
        "chaos_report": call.service.settings.chaos_report is not None,
    }
    return Answer(200, {**call.service.authority.describe(call.caller), **here})


def refuse_partial_view(call: Call) -> None:
    """Raises 403 unless the caller may see all names of the namespace."""
    if "" not in call.service.authority.prefixes(call.caller, call.store.namespace):
        raise Problem("forbidden", f"{call.caller.title} may not see the whole namespace")
