"""Detaching a lease: it lasts for some time at the store, though nobody renews it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from .. import forks
from .._runtime.aio import current, finish
from ..errors import BackendUnavailable, LockError
from .hold import HOLDING, Hold
from .session import LEAST_LIMIT


async def detach(hold: Hold, rest: Callable[[], float], keep: bool = False) -> bool:
    """Lets a lease last for a while at the store, and ends it for us: False if it had ended.

    `rest` returns for how many seconds, when that is sent: renewals that are under way come first.
    If that fails, or is interrupted: with `keep` it is ours as before. Without, it is neither held nor
    renewed any more; that may be tried again while it lasts.
    """
    session = hold._session
    hold._refuse_fork()
    # unasync: aio-only
    session.closing.strand_if_ended()
    # unasync: end
    now = session.now()
    if hold._expire_if_due(now):
        return False
    ticket = hold._ticket

    async def send(deadline: float) -> bool:
        name, owner = ticket.terms.name, ticket.owner
        return await session.backend.detach(name, owner, rest(), deadline)

    async def send_again() -> None:
        with suppress(LockError):
            await send(session.deadline())

    try:
        hold._detaching = current()
        hold._releases += not keep  # it may last for less than we know
        session.keeper.forget(hold)  # it is not to be renewed behind that
        deadline = now + session.patience
        await session.renewals.end(ticket.owner, deadline - LEAST_LIMIT)
        detached = await send(deadline)
    except BaseException as error:
        if session.generation != forks.current():
            raise  # a handler has forked in the middle of it, and goes on in the child
        hold._detached_in_doubt = keep
        if keep and hold._state in HOLDING and not session.closed:
            session.keeper.keep(hold, session.now())
        if isinstance(error, BackendUnavailable):
            raise hold._unavailable("could not be detached", error) from error
        if not keep:  # cancelled, perhaps before it was sent: it is harmless to send it twice
            hold._freed(True)
            await finish(send_again, grace=session.patience)
        raise
    finally:
        hold._detaching = None
        if session.closed:
            session.closing.drained.set()
    return hold._freed(detached) if keep else hold._answered(detached)
