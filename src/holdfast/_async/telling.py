"""Telling that a lease has ended: the listeners, those who wait for it, its bodies, its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._runtime.aio import current
from ..events import refuse_coroutine, report
from ..interrupts import is_from_handler

if TYPE_CHECKING:
    from .hold import Hold
    from .lease import Lease


def tell_lost(hold: Hold) -> None:
    """Tells everybody who wants to know, and has the keeper free what is left at the store.

    One caller does that, whoever else notices meanwhile. An exception from a signal's handler may come
    in between: the alarm then tells the rest.
    """
    session = hold._session
    first = False
    try:
        with session.mutex:
            first = hold._teller is None
            if first:
                hold._teller = current() or hold  # an alarm's call belongs to no task
        if first:
            _tell_all(hold)
    finally:
        if first:
            hold._teller = None
            if hold._untold:
                # `close` tells the rest, if it comes before the alarm.
                session.recalled[hold._ticket.owner] = hold
            if session.closed:
                session.closing.drained.set()  # it frees the lease
            elif hold._untold:
                session.alarm.at(session.clock.now(), hold._ring)
            elif hold._freeing:
                session.keeper.keep(hold, max(session.clock.now(), hold._free_at()))


def _tell_all(hold: Hold) -> None:
    session = hold._session
    if hold._kept:
        session.keeper.forget(hold)
    if session.listeners and hold._lost is not None and not hold._lost_told:
        hold._lost_told = True
        held = session.clock.now() - hold._granted_at
        session.tell("lost", hold.name, hold.owner, hold.token, held, hold._lost[1])
    # Before its bodies know: one that ends does not free the lease then.
    hold._calling_back = bool(hold._callbacks)
    for signal in list(hold._watchers or ()):
        signal.set()
    for body in list(hold._usage.bodies):
        body.interrupt.fire()
    while hold._callbacks:
        callback, lease, opening = hold._callbacks.pop(0)
        call_back(hold, callback, lease() or hold._request.lease_type(hold, opening))
    hold._calling_back = False
    hold._tell_others()
    if hold._alarmed:
        session.alarm.cancel(hold._ring)
    hold._untold = False
    if not hold._freeing:
        session.recalled.pop(hold._ticket.owner, None)


def tell_freed(hold: Hold) -> None:
    """Tells those who want to know of a lease that it was released."""
    session = hold._session
    if hold._alarmed:
        session.alarm.cancel(hold._ring)
    with session.mutex:
        watchers = list(hold._watchers or ())
    for signal in watchers:
        signal.set()
    if session.listeners:
        held = session.clock.now() - hold._granted_at
        session.tell("released", hold.name, hold.owner, hold.token, held)


def call_back(hold: Hold, callback: Callable[[Any], object], lease: Lease) -> None:
    """Calls what a user gave to `on_lost`; what that raises is reported, and stops nobody."""
    try:
        hold._session.call(lambda lease: refuse_coroutine(callback(lease)), lease)
    except BaseException as error:  # also one that exits: it must not take the keeper along
        if isinstance(error, KeyboardInterrupt) or is_from_handler(error):
            raise
        report(f"an on_lost callback of the lease on {hold.name!r} failed", error)
