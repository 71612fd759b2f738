"""Taking over a lease that was exported: `locks.adopt(text)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import forks
from ..errors import BackendUnavailable, LeaseLost
from ..exported import Export
from ..model import Granted, new_owner
from .lease import Lease
from .waiting import tell_granted

if TYPE_CHECKING:
    from .opening import Opening
    from .request import Request
    from .session import Session


async def adopt(opening: Opening, request: Request, export: Export) -> Lease:
    """Returns the lease, which is ours from now on, with a new token."""

    async def take(session: Session, deadline: float) -> Lease:
        sent = session.now()
        ticket = session.begin(request, new_owner(session.id), False, None)
        try:
            answer = await session.backend.adopt(ticket, export.owner, deadline)
            if isinstance(answer, Granted):
                ticket.slot = answer.slot
                since = answer.since or sent
                hold = session.hold(request, ticket, answer.token, answer.ttl, since)
                if hold is not None:
                    forks.refuse_inherited(session.generation)  # what was granted is the parent's
                    if session.listeners:
                        tell_granted(session, hold, sent, False)
                    lease = request.lease_type(hold, opening)
                    hold._usage.given = True
                    return lease
                session.check_open()
                raise BackendUnavailable("the store took longer to answer than the lease lasts")
            session.leave(ticket.owner)
        except BaseException as error:
            try:
                await session.give_up(ticket, silent=isinstance(error, BackendUnavailable))
            except BaseException:  # another interrupt, perhaps at the very entry of it
                session.give_up_later(ticket)
                raise
            raise
        raise LeaseLost(
            f"the lease on {export.name!r} (token {export.token}) cannot be adopted: it has ended, or "
            "somebody else has adopted it",
            name=export.name,
            owner=export.owner,
            token=export.token,
            reason="it has ended, or somebody else has adopted it",
        )

    return await opening.ask(f"made to pass on {export.name!r}", export.name, take)
