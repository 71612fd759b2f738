"""Changing a lease at the store, while it goes on: `lease.downgrade()`, `term.set_value()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BackendUnavailable

if TYPE_CHECKING:
    from .hold import Hold


async def amend(hold: Hold, failed: str, weight: int = 0, text: str | None = None) -> None:
    """Changes the lease at the store; raises `LeaseLost` if it has ended there.

    `failed` says of the lock what is the case if the store does not answer.
    """
    session, ticket = hold._session, hold._ticket
    # unasync: aio-only
    if session.closing.strand_if_ended():
        raise hold._loss()
    # unasync: end
    deadline = session.deadline()
    try:
        amended = await session.backend.amend(ticket.name, ticket.owner, deadline, weight, text)
    except BackendUnavailable as error:
        raise hold._unavailable(failed, error) from error
    if not amended:
        hold._end("the store says that it has ended")
        raise hold._loss()
