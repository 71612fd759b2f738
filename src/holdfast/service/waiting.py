"""Held requests: a request that waits for a lock, until it is granted, refused, or its client is gone.

A held request costs no thread. It has a place in the store's queue, which the heartbeats keep, and it
is woken by the store. Before it is answered the grant is confirmed by a renewal, so that the caller
has the whole TTL. However the wait ends other than by a grant that is told to the client, the store is
asked to forget the owner, in a step that also hands on a grant which came at the same moment.

Two requests for the same owner, where the first one's answer was lost perhaps, share one waiter. One of
them leads: it asks the store, and waits to be woken. When its time is over another goes on. The waiter
leaves the queue when all clients are gone, or their time is over.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from .._runtime.aio import Signal
from ..entries import Claim
from ..errors import BackendUnavailable
from ..model import Busy, Gone, Granted, Queued, Renewed, Waiting
from ..refusals import owner_used_again
from .answers import Receive
from .problems import Problem, too_late
from .waiter import HANDED_ON, SILENCE_LIMIT, ClientGone, Grant, Waiter

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .store import Store

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two questions to a store that keeps no queue."""


class Waits:
    """The held requests of one namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: dict[str, Waiter] = {}
        self.stopping = False

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, owner: str) -> bool:
        """Tells whether a request of this owner waits, or is being given up."""
        return owner in self._waiters

    def stop(self) -> None:
        """Ends all waits: each request is answered, and has left its queue before."""
        self.stopping = True
        for waiter in list(self._waiters.values()):
            waiter.stop()

    async def wait(self, ticket: Ticket, give_up: float, receive: Receive) -> Grant | None:
        """Returns the grant; None if it did not come before `give_up`.

        Raises `ClientGone` when the client is gone, and a `Problem` when the service stops.
        """
        while True:
            present = self._waiters.get(ticket.owner)
            if present is not None and not _same(present.ticket, ticket):
                raise owner_used_again(ticket.owner)
            if self._store.given_up.has(ticket.name, ticket.owner):
                raise too_late(ticket.name, ticket.owner)
            if present is None:
                break
            if present.over:
                await asyncio.wait((present.shared_end(),))
            elif present.left:
                raise too_late(ticket.name, ticket.owner)
            else:
                return await self._wait_along(present, give_up, receive)
        waiter = Waiter(self._store, ticket)
        self._waiters[ticket.owner] = waiter
        async with _Attention(waiter, receive) as attention:
            return await self._lead(waiter, attention, give_up)

    async def _lead(self, waiter: Waiter, attention: _Attention, give_up: float) -> Grant | None:
        """Waits on behalf of all requests for this owner; another one goes on after `give_up`."""
        ticket, handed_on = waiter.ticket, False
        waiter.led = True
        grant: Grant | None = None
        given_up = False
        try:
            grant = await self._obtain(waiter, give_up)
            await attention.settle()
            if waiter.left:
                raise ClientGone
            if self._store.given_up.has(ticket.name, ticket.owner):  # meanwhile
                raise too_late(ticket.name, ticket.owner)
            if grant is None:
                attention.leave_it()
                handed_on = waiter.hand_on()
            return grant
        except BaseException as error:
            grant, given_up = None, True
            waiter.fail(error)
            raise
        finally:
            if not handed_on:
                waiter.over = True
                self._store.heartbeats.forget(waiter)
                try:
                    if given_up:
                        # First: a request that repeats it must not be granted what is freed.
                        self._store.refuse(ticket.name, ticket.owner)
                    if grant is None and not waiter.lost:
                        await self._store.clean_up(ticket)
                finally:
                    self._forget(waiter)
                    waiter.finish(grant)

    def _forget(self, waiter: Waiter) -> None:
        self._store.heartbeats.forget(waiter)
        if self._waiters.get(waiter.owner) is waiter:
            del self._waiters[waiter.owner]

    async def _wait_along(self, present: Waiter, give_up: float, receive: Receive) -> Grant | None:
        """Waits for the end of another request for the same owner, and in its place if need be."""
        present.join()
        async with _Attention(present, receive) as attention:
            while True:
                end = present.shared_end()
                left = max(give_up - self._store.now(), 0.0)
                ends: set[asyncio.Future[Any]] = {end, attention.task}
                try:
                    await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                except BaseException:
                    attention.leave_it()
                    if present.left and not present.led:
                        self._forget(present)
                    raise
                if end.done() and not present.led:
                    return await self._lead(present, attention, give_up)
                if attention.task.done():
                    raise ClientGone
                if not end.done():
                    attention.leave_it()
                    return None
                try:
                    result = end.result()
                except ClientGone:
                    detail = "the wait was given up"
                    raise Problem("unavailable", detail, name=present.name) from None
                if result is not HANDED_ON:
                    return result

    async def _obtain(self, waiter: Waiter, give_up: float) -> Grant | None:
        """Asks for the lock and waits for it."""
        store, ticket = self._store, waiter.ticket
        pause = SHORTEST_PAUSE
        while True:
            self._check(waiter)
            sent = store.now()
            answer: Granted | Queued | Busy = await store.ask(
                lambda backend, deadline: backend.acquire(ticket, deadline)
            )
            if isinstance(answer, Granted) and not answer.handed:
                return Grant(answer.token, answer.ttl, answer.since or sent, answer.slot)
            if not isinstance(answer, Busy):
                return await self._wait_in_queue(waiter, give_up, answer)
            now = store.now()
            if now >= give_up:
                return None
            # The store keeps no queue: ask again later, never in step with others.
            moment = min(now + pause * (0.5 + os.urandom(1)[0] / 256), give_up)
            await Signal(store.backend.clock).wait(moment)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _wait_in_queue(
        self, waiter: Waiter, give_up: float, answer: Granted | Queued
    ) -> Grant | None:
        store, ticket = self._store, waiter.ticket
        backend = store.backend
        if isinstance(answer, Granted):
            store.heartbeats.keep(waiter, store.now() + backend.heartbeat / 3)
            grant = await self._ask(waiter)
            if grant is not None:
                return grant
        else:
            first = min(backend.heartbeat, max(answer.remaining, 0.0) + 0.02)
            store.heartbeats.keep(waiter, store.now() + first)
        while True:
            self._check(waiter)
            told = await backend.wait(ticket, give_up)
            self._check(waiter)
            if waiter.grant is not None:
                return waiter.grant
            now = store.now()
            if now >= give_up:
                return None
            if told is not None or not waiter.lost:
                grant = await self._ask(waiter)
                if grant is not None:
                    return grant

    def _check(self, waiter: Waiter) -> None:
        """Raises if there is nothing to wait for any more."""
        if waiter.left:
            raise ClientGone
        if waiter.stopping or self.stopping:
            raise Problem(
                "stopping",
                f"the service stops, so the wait for {waiter.name!r} has ended, and the queue was "
                "left; ask again, with another owner id",
                name=waiter.name,
                owner=waiter.owner,
            )
        if waiter.grant is not None:
            return
        if waiter.lost:
            raise Problem(
                "gone",
                f"the place in the queue for {waiter.name!r} was lost; ask again, with an owner id "
                "that was never used",
                name=waiter.name,
                owner=waiter.owner,
            )
        if waiter.unanswered:
            raise BackendUnavailable(
                f"the store has not answered for {SILENCE_LIMIT:g} s, so its queue was left",
                name=waiter.name,
                owner=waiter.owner,
            )

    async def _ask(self, waiter: Waiter) -> Grant | None:
        """Asks the store about a waiter that was woken. None: it still waits, or no answer came."""
        sent = self._store.now()
        claim = Claim(waiter.name, waiter.owner, waiter.ttl)
        try:
            (outcome,) = await self._store.renew([claim])
        except BackendUnavailable:
            waiter.note_silence(self._store.now())
            return None  # the heartbeats go on asking
        if isinstance(outcome, Renewed):
            return Grant(outcome.token, outcome.ttl, outcome.since or sent, outcome.slot)
        if isinstance(outcome, Waiting):
            waiter.answered()
        elif isinstance(outcome, Gone):
            waiter.lost = True
        return None


class _Attention:
    """Listens whether the client of a waiter is still there."""

    __slots__ = ("_left", "_receive", "_waiter", "task")

    def __init__(self, waiter: Waiter, receive: Receive) -> None:
        self._waiter = waiter
        self._receive = receive
        self._left = False

    async def __aenter__(self) -> _Attention:
        self.task = asyncio.ensure_future(self._listen())
        return self

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.leave_it()

    def leave_it(self) -> None:
        """Has the client leave the waiter, unless it has."""
        if not self._left:
            self._left = True
            self._waiter.leave()

    async def settle(self) -> None:
        """Lets a client that has gone by now be noticed."""
        await asyncio.sleep(0)

    async def __aexit__(self, *error: object) -> None:
        self.task.cancel()


def _same(one: Ticket, other: Ticket) -> bool:
    """Tells whether two tickets of one owner ask for the same."""
    return (one.name, one.weight, one.capacity, one.kind) == (
        other.name,
        other.weight,
        other.capacity,
        other.kind,
    )
