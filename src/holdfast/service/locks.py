"""The verbs of one lock: acquire, renew, release, amend, detach, adopt, look, force."""

from __future__ import annotations

from typing import Any

from .. import checks
from ..entries import Claim
from ..errors import GuaranteeError, LockError
from ..model import Busy, Gone, Granted, Queued, Renewed, Waiting, new_owner
from ..stores._async.contract import Ticket
from .answers import Answer
from .call import Call
from .problems import Problem, problem_of, too_late
from .security import audit
from .store import Store
from .views import grant_text, outcome_view, state_view, waiting_view
from .waiter import Grant

RELEASED = b'{"released":true}'


def complete(values: dict[str, Any], store: Store, name: str) -> None:
    """Fills in what follows from the rest of an acquire's values, and refuses what makes no sense."""
    kind, capacity, weight = values["kind"], values["capacity"], values["weight"]
    if kind is None:
        kind = values["kind"] = "semaphore" if capacity > 1 else "lock"
    if kind == "rwlock":
        if capacity == 1:
            capacity = values["capacity"] = checks.MAX_CAPACITY
    elif kind != "semaphore" and capacity != 1:
        raise Problem(
            "bad-input", f"a {kind} has a capacity of 1, not {capacity}", field="capacity"
        )
    if weight > capacity:
        raise Problem(
            "bad-input",
            f"the weight {weight} is more than the capacity {capacity}",
            field="weight",
            name=name,
        )
    if values["delay"] and values["ttl"] <= values["delay"]:
        raise Problem(
            "bad-input",
            f"the ttl of {values['ttl']:g} s has to be longer than the delay of "
            f"{values['delay']:g} s, which is the last part of it",
            field="delay",
            name=name,
        )
    if values["fair"] is True and not store.guarantees.fair:
        raise GuaranteeError(
            f"{name!r} was asked to be fair, which {store.guarantees.store} cannot promise",
            name=name,
        )


async def acquire(call: Call) -> Answer:
    """Grants the lock; or waits for it; or queues; or says who holds it."""
    name, values = call.name, call.body
    complete(values, call.store, name)
    owner, wait = values["owner"] or new_owner(), values["wait"]
    queue = values["queue"] or wait > 0
    with call.store.lanes.use(name, owner, queue) as store:
        session = store.open_session() or await store.session()
        received = session.now()
        ticket = Ticket(store.terms(values, name, call.client), owner, queue)
        if store.given_up.has(name, owner):
            raise too_late(name, owner)
        if wait or owner in store.waits:
            return await _acquire_waiting(call, store, ticket, received, received + wait)
        if queue:
            call.limit_places(store.bells, owner)
        try:
            answer: Granted | Queued | Busy = await session.backend.acquire(
                ticket, received + store.patience
            )
        except LockError as error:
            raise problem_of(error, name, owner) from error
        now = session.now()
        if store.given_up.has(name, owner):  # meanwhile
            await store.clean_up(ticket)
            raise too_late(name, owner)
        if isinstance(answer, Busy):
            raise await busy(store, name, owner, answer.remaining)
        place = call.place(owner, values["session"])
        if isinstance(answer, Queued):
            store.bells.hang(ticket, place)
            view = waiting_view(name, owner, answer.remaining, answer.since, received)
            return Answer(202, view)
        token, ttl, handed, since, slot = answer
        if handed:
            store.bells.hang(ticket, place)
        else:
            store.bells.remember(name, owner, place)
        grant = Grant(token, ttl, since or received, slot, handed)
        store.tell("acquired", name, owner, token, now - received)
        return Answer(200, grant_text(name, owner, grant, received, now))


async def _acquire_waiting(
    call: Call, store: Store, ticket: Ticket, received: float, give_up: float
) -> Answer:
    name, owner = ticket.name, ticket.owner
    authority = call.service.authority
    authority.begin(call.caller, "wait")
    try:
        grant = await store.waits.wait(ticket, give_up, call.receive)
    except LockError as error:
        raise problem_of(error, name, owner) from error
    finally:
        authority.end(call.caller, "wait")
    now = store.now()
    if grant is None:
        store.tell("waited", name, owner, 0, now - received, "gave up")
        raise await busy(store, name, owner, 0.0)
    store.tell("waited", name, owner, grant.token, now - received, "granted")
    store.tell("acquired", name, owner, grant.token, now - received)
    return Answer(200, grant_text(name, owner, grant, received, now))


async def busy(store: Store, name: str, owner: str, remaining: float) -> Problem:
    """Returns the problem of a lock that others hold, with who they are."""
    holders: list[dict[str, Any]] = []
    try:
        state = state_view(await store.inspect(name))
        holders = state["holders"]
    except LockError:
        pass  # it is busy all the same
    if holders:
        remaining = max(one["remaining"] for one in holders)
    return Problem(
        "busy",
        f"{name!r} is held by others, or others were first; wait for it, or ask again later",
        name=name,
        owner=owner,
        holders=holders,
        remaining=max(remaining, 0.0),
    )


def gone(name: str, owner: str) -> Problem:
    """Returns the problem of an owner of whom the store knows nothing."""
    return Problem(
        "gone",
        f"the owner {owner!r} neither holds {name!r} nor waits for it: its lease has ended, or never "
        "was; stop the work that it protected, and acquire the lock again with another owner id",
        name=name,
        owner=owner,
    )


async def renew(call: Call) -> Answer:
    """Renews a lease, or a place in the queue."""
    store, name, owner = call.store, call.name, call.body["owner"]
    session = await store.session()
    received = session.now()
    with store.lanes.use(name, owner) as lane:
        (outcome,) = await lane.renew([Claim(name, owner, call.body["ttl"])])
        lane.bells.note(name, owner, outcome)
    now = session.now()
    if isinstance(outcome, Renewed):
        lane.bells.remember(name, owner, call.place(owner), anew=False)
        store.tell("renewed", name, owner, outcome.token, now - received)
        return Answer(200, outcome_view(name, owner, outcome, received, now))
    if isinstance(outcome, Waiting):
        return Answer(202, outcome_view(name, owner, outcome, received, now))
    if isinstance(outcome, Gone):
        raise gone(name, owner)
    raise Problem("unavailable", f"the store did not answer for {name!r}", name=name, owner=owner)


async def release(call: Call) -> Answer:
    """Frees a lease, or leaves the queue."""
    store, name, owner = call.store, call.name, call.body["owner"]
    if call.body["doubtful"]:
        await store.give_up(name, owner)
    with store.lanes.use(name, owner) as lane:
        released = await lane.release(name, owner)
        lane.bells.take_down(name, owner)
    if not released:
        raise gone(name, owner)
    store.tell("released", name, owner, 0, 0.0)
    return Answer(200, RELEASED)


async def amend(call: Call) -> Answer:
    """Gives a lease less weight, or its label another text."""
    name, owner = call.name, call.body["owner"]
    weight, text = call.body["weight"], call.body["text"]
    if weight is None and text is None:
        raise Problem("bad-input", "give a weight or a text", name=name, owner=owner)
    done = await call.store.ask(
        lambda backend, deadline: backend.amend(name, owner, deadline, weight or 0, text),
    )
    if not done:
        raise gone(name, owner)
    return Answer(200, {})


async def detach(call: Call) -> Answer:
    """Lets a lease last for a time though nobody renews it."""
    name, owner, ttl = call.name, call.body["owner"], call.body["ttl"]
    longest = call.store.guarantees.longest_detached
    if ttl > longest:
        store = call.store.guarantees.store
        raise GuaranteeError(f"{store} keeps a lease for at most {longest:g} s", name=name)
    done = await call.store.ask(
        lambda backend, deadline: backend.detach(name, owner, ttl, deadline)
    )
    if not done:
        raise gone(name, owner)
    return Answer(200, {})


async def adopt(call: Call) -> Answer:
    """Makes the lease of another owner one's own, with a new token."""
    store, name, values = call.store, call.name, call.body
    complete(values, store, name)
    session = await store.session()
    received = session.now()
    owner = values["owner"] or new_owner()
    ticket = Ticket(store.terms(values, name, call.client), owner, False)
    if store.given_up.has(name, owner):
        raise too_late(name, owner)
    try:
        answer: Granted | Gone = await store.ask(
            lambda backend, deadline: backend.adopt(ticket, values["giver"], deadline)
        )
    except LockError as error:
        raise problem_of(error, name, owner) from error
    if isinstance(answer, Gone):
        raise gone(name, values["giver"])
    if store.given_up.has(name, owner):  # meanwhile
        await store.clean_up(ticket)
        raise too_late(name, owner)
    now = session.now()
    store.tell("acquired", name, owner, answer.token, now - received)
    grant = Grant(answer.token, answer.ttl, answer.since or received, answer.slot)
    return Answer(200, grant_text(name, owner, grant, received, now))


async def look(call: Call) -> Answer:
    """Tells how a lock stands."""
    return Answer(200, state_view(await call.store.inspect(call.name)))


async def force(call: Call) -> Answer:
    """Takes a lock away from its holders."""
    store, name = call.store, call.name
    actor = f"{call.caller.title} by HTTP from {call.client}"
    before = await store.inspect(name)
    if call.query["actor"]:
        actor = f"{call.query['actor']} ({actor})"
    known: dict[str, Any] = {}
    try:
        released = await store.ask(
            lambda backend, deadline: backend.force_release(
                name, actor, deadline, call.query["token_above"]
            ),
        )
        known["released"] = released
        store.note_forced(name)
        store.tell("forced", name, "", 0, 0.0, f"by {actor}")
        state = await store.inspect(name)
        known["token_after"] = state.token
    except BaseException as error:  # it may have happened all the same
        known["failure"] = type(error).__name__
        raise
    finally:
        audit.write(
            "forced-release",
            lock=name,
            namespace=store.namespace,
            token_before=before.token,
            holders=[{"owner": one.owner, "label": str(one.label)} for one in before.holders],
            by=call.caller.title,
            actor=call.query["actor"] or None,
            token_id=call.caller.key or None,
            address=call.client,
            **known,
        )
    return Answer(200, {"released": released, "token": state.token})
