"""Several locks in one request: renewals in a batch, several locks as one, and lists."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from .._runtime.aio import call_all
from ..entries import Claim
from ..errors import LockError
from ..model import Granted, Renewed, new_owner
from ..stores._async.contract import Ticket
from .answers import Answer
from .authority import HOLD
from .call import Call
from .locks import busy, complete
from .problems import Problem, problem_of, too_late
from .store import Store
from .views import grant_view, outcome_view, state_view
from .waiter import Grant


async def renew_all(call: Call) -> Answer:
    """Renews leases and places in the queue."""
    store = call.store
    claims = []
    for one in call.body["claims"]:
        call.require(HOLD, one["name"])
        claims.append(Claim(one["name"], one["owner"], one["ttl"]))
    session = await store.session()
    received = session.now()
    outcomes = await store.renew(claims)
    now = session.now()
    views = []
    for claim, outcome in zip(claims, outcomes, strict=True):
        name, owner = claim.name, claim.owner
        for lane in store.lanes.stores:
            lane.bells.note(name, owner, outcome)
        if isinstance(outcome, Renewed):
            store.bells.remember(name, owner, call.place(owner), anew=False)
        views.append(outcome_view(claim.name, claim.owner, outcome, received, now))
    return Answer(200, {"outcomes": views})


async def acquire_all(call: Call) -> Answer:
    """Grants all of several locks, or none. It waits for nobody."""
    store = call.store
    wanted: list[dict[str, Any]] = call.body["locks"]
    seen: set[str] = set()
    for values in wanted:
        name = values["name"]
        call.require(HOLD, name)
        complete(values, store, name)
        if name in seen:
            raise Problem("bad-input", f"the lock {name!r} is asked for twice", name=name)
        seen.add(name)
    owners = [values["owner"] for values in wanted if values["owner"]]
    if len(set(owners)) != len(owners):
        raise Problem("bad-input", "each lock needs an owner id of its own", field="owner")
    session = await store.session()
    received = session.now()
    tickets = [
        Ticket(
            store.terms(values, values["name"], call.client), values["owner"] or new_owner(), False
        )
        for values in sorted(wanted, key=lambda values: str(values["name"]))
    ]
    async with _in_turn(store, owners):
        grants = await _ask_for_all(store, tickets, set(owners))
        for ticket in tickets:
            if store.given_up.has(ticket.name, ticket.owner):
                await call_all([partial(store.clean_up, one) for one in tickets])
                raise too_late(ticket.name, ticket.owner)
    now = session.now()
    views = {}
    for ticket, answer in zip(tickets, grants, strict=True):
        grant = Grant(answer.token, answer.ttl, answer.since or received, answer.slot)
        views[ticket.name] = grant_view(ticket.name, ticket.owner, grant, received, now)
        store.tell("acquired", ticket.name, ticket.owner, answer.token, now - received)
    return Answer(200, {"grants": [views[values["name"]] for values in wanted]})


@asynccontextmanager
async def _in_turn(store: Store, owners: Iterable[str]) -> AsyncIterator[None]:
    """Waits until no other request of these owners is under way: what one of them frees, because not
    all was to be had, must not be what a request that repeats it was granted."""
    async with AsyncExitStack() as stack:
        for owner in sorted(owners):
            turn = store.turns.get(owner)
            if turn is None:
                turn = store.turns[owner] = asyncio.Lock()
            await stack.enter_async_context(turn)
        yield


async def _ask_for_all(
    store: Store, tickets: Sequence[Ticket], named: set[str]
) -> Sequence[Granted]:
    """Returns the grants of all tickets; raises the problem, and leaves nothing, if one is busy.

    A step that was not answered is left to the caller, as far as it has named the owners: it may ask
    another service for the same meanwhile, and what that one grants must not be freed from here.
    """
    session = await store.session()
    in_one_step = getattr(session.backend, "acquire_all", None)
    try:
        if in_one_step is not None:
            answers = await store.ask(lambda _, deadline: in_one_step(tickets, deadline))
            if isinstance(answers, list | tuple) and not hasattr(answers, "_fields"):
                return list(answers)
            raise await _busy_one(store, tickets)
        granted: list[Granted] = []
        for ticket in tickets:
            answer = await _ask(store, ticket)
            if not isinstance(answer, Granted):
                raise await busy(store, ticket.name, ticket.owner, answer.remaining)
            granted.append(answer)
        return granted
    except BaseException as error:
        if in_one_step is None:
            unwanted = list(tickets)
        elif isinstance(error, Problem):
            unwanted = []
        else:
            unwanted = [ticket for ticket in tickets if ticket.owner not in named]
        await call_all([partial(store.clean_up, ticket) for ticket in unwanted])
        if isinstance(error, LockError):
            raise problem_of(error) from error
        raise


async def _ask(store: Store, ticket: Ticket) -> Any:
    return await store.ask(lambda backend, deadline: backend.acquire(ticket, deadline))


async def _busy_one(store: Store, tickets: Sequence[Ticket]) -> Problem:
    """Returns the problem of the first of several locks that others hold."""
    for ticket in tickets:
        problem = await busy(store, ticket.name, ticket.owner, 0.0)
        if problem.members["holders"]:
            return problem
    return await busy(store, tickets[0].name, tickets[0].owner, 0.0)


async def release_all(call: Call) -> Answer:
    """Frees several leases."""
    store = call.store
    pairs = []
    for one in call.body["locks"]:
        call.require(HOLD, one["name"])
        pairs.append((one["name"], one["owner"]))
        if one["doubtful"]:
            await store.give_up(one["name"], one["owner"])
    session = await store.session()
    in_one_step = getattr(session.backend, "release_all", None)
    if in_one_step is not None:
        released = await store.ask(lambda _, deadline: in_one_step(pairs, deadline))
    else:
        released = [await store.release(name, owner) for name, owner in pairs]
    for name, owner in pairs:
        for lane in store.lanes.stores:
            lane.bells.take_down(name, owner)
    return Answer(200, {"released": list(released)})


async def list_locks(call: Call) -> Answer:
    """Lists the locks that are held or waited for, in pages by name."""
    prefix, after, limit = call.query["prefix"], call.query["after"], call.query["limit"]
    store = call.store
    visible = call.service.authority.prefixes(call.caller, store.namespace)
    look = await store.listing.look(tuple(narrowed(prefix, visible)), bool(after))
    first = bisect_right(look.states, after, key=lambda state: state.name) if after else 0
    page = look.states[first : first + limit]
    answer: dict[str, Any] = {"locks": [state_view(state) for state in page], "at": look.at}
    if first + limit < len(look.states):
        answer["next"] = page[-1].name
    return Answer(200, answer)


def narrowed(prefix: str, visible: Sequence[str]) -> list[str]:
    """Returns the prefixes of the names that begin with `prefix` and may be seen; none twice."""
    found: set[str] = set()
    for one in visible:
        if one.startswith(prefix):
            found.add(one)
        elif prefix.startswith(one):
            found.add(prefix)
    return [one for one in sorted(found) if not any(o != one and one.startswith(o) for o in found)]
