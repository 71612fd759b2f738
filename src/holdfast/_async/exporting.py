"""Giving a lease away as a text: `lease.export()`. `adopting` takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import exported
from .detaching import detach

if TYPE_CHECKING:
    from .lease import Lease


async def export(lease: Lease) -> str:
    """Returns the text by which the lease can be adopted; it has ended for us then."""
    hold = lease._hold
    lease.ensure()
    ticket, delay = hold._ticket, hold._ticket.terms.delay
    text = exported.encode(
        exported.Export(
            hold._session.realm,
            lease.name,
            lease.owner,
            lease.token,
            lease.kind,
            1 if lease.shared else ticket.weight,
            ticket.capacity,
            lease.ttl,
            delay,
            lease._exported_text(),
        )
    )
    if not await detach(hold, lambda: ticket.ttl, keep=True):
        raise hold._loss()
    return text
