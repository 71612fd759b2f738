"""`/v1/elections/{name}/changes`: who leads, and every change of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import blake2b
from secrets import token_bytes

from ..errors import LockError
from ..model import OWNER_ID, Label, Observation, new_owner
from ..stores._async.contract import OBSERVED_FOR, Terms, Ticket
from .answers import Answer
from .call import Call
from .problems import Problem
from .store import Store
from .views import View, change_view
from .waiter import ClientGone

LOOK_EVERY = OBSERVED_FOR / 3
"""Seconds after which a held request looks even if it was not woken."""
SOON = 0.05
"""Seconds after the end of a leader's lease at which a held request looks who leads now."""
_SECRET = token_bytes(32)
"""Keeps callers from finding out the ids of observers."""


async def changes(call: Call) -> Answer:
    """Tells the changes of an election above a number; with `wait` it is held until there is one."""
    store, after, wait = call.store, call.query["after"], call.query["wait"]
    owner = call.query["owner"]
    terms = Terms(call.name, 1.0, Label(call.client, 0), kind="election")
    if wait:  # under an id that no other request has
        return await _wait(call, store, Ticket(terms, new_owner(), False), after, wait)
    if owner is not None:
        observer = _observer(call, owner)
        with store.lanes.use(call.name, observer, queue=True) as lane:
            call.limit_places(lane.bells, observer)
            ticket = Ticket(terms, observer, False)
            observation = await _observe(lane, ticket, after)
            lane.bells.hang(ticket, call.place(owner, call.query["session"]), owner)
    else:
        ticket = Ticket(terms, new_owner(), False)
        observation = await _observe(store, ticket, after)
        await _unobserve(store, ticket)
    return Answer(200, _view(observation))


def _observer(call: Call, owner: str) -> str:
    """Returns the id that the store is told in place of the one that an observer has given itself.

    That may be the owner id of one who waits or holds, who is not to be disturbed by a caller that may
    only read. It is the same for each request of this caller for this election.
    """
    words = (call.caller.key, call.name, owner)
    digest = blake2b(repr(words).encode(), digest_size=OWNER_ID // 2, key=_SECRET)
    return digest.hexdigest()


async def _wait(call: Call, store: Store, ticket: Ticket, after: int, wait: float) -> Answer:
    authority = call.service.authority
    authority.begin(call.caller, "wait")
    attention = asyncio.create_task(_listen(call, ticket))
    store.observers.add(ticket)
    try:
        session = await store.session()
        give_up = session.now() + wait
        while True:
            observation = await _observe(store, ticket, after)
            now = session.now()
            if observation.changes or now >= give_up:
                return Answer(200, _view(observation))
            until = min(give_up, now + LOOK_EVERY)
            if observation.remaining > 0:
                until = min(until, now + observation.remaining + SOON)
            await session.backend.wait(ticket, until)
            if call.service.stopping:
                raise Problem("stopping", "the service is stopping", name=call.name)
            if attention.done():
                raise ClientGone
    finally:
        attention.cancel()
        store.observers.discard(ticket)
        authority.end(call.caller, "wait")
        await _unobserve(store, ticket)


async def _listen(call: Call, ticket: Ticket) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
    ticket.tell()


async def _observe(store: Store, ticket: Ticket, after: int) -> Observation:
    return await store.ask(lambda backend, deadline: backend.observe(ticket, after, deadline))


async def _unobserve(store: Store, ticket: Ticket) -> None:
    """Tells the store that nobody looks any more; it would find out by itself."""
    with suppress(LockError):
        await store.ask(lambda backend, deadline: backend.unobserve(ticket, deadline))


async def unobserve(call: Call) -> Answer:
    """Ends what a request for changes with this owner began."""
    name, observer = call.name, _observer(call, call.query["owner"])
    with call.store.lanes.use(name, observer) as lane:
        ticket = lane.bells.ticket_of(name, observer)
        if ticket is not None:
            lane.bells.take_down(name, observer)
            await _unobserve(lane, ticket)
    return Answer(200, {})


def _view(observation: Observation) -> View:
    changes = [change_view(change) for change in observation.changes]
    return {"changes": changes, "remaining": max(observation.remaining, 0.0)}
