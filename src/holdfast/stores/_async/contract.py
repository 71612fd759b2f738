"""The backend contract: all that the engine knows of a store, and all that a store must do.

To add a store, write a class with these members and name it in `stores.urls`; then add its line to the
conformance suite, which runs every rule below against it. A backend knows its store and
nothing of the engine: no leases, no keeper, no time-outs of the user.

**The one primitive.** A ticket asks for a *weight* out of a lock's *capacity*, first come, first
served. A mutex is weight 1 of capacity 1; a semaphore weight 1 of n; a reader weight 1 and a writer
all of a large capacity; an election is a mutex of the kind `election`, whose value is its holder's
label, and whose changes are remembered for those who observe it. A lock has one
kind and capacity at a time: a ticket that differs is refused with `ConfigError` while anybody holds
or waits, in the step that would have enqueued it.

**Rules.**

1. *The grant is atomic and mints the token*: an integer above that of every grant of the lock that
   ended before it and of every conflicting one, whatever expired, crashed or was cleaned up. Where the
   guarantees say `slots`, each holder of a semaphore has a slot from 0 to permits - 1 that no other has
   meanwhile: the remainder of its token by the capacity, or the `slot` of its grant and renewals.
2. *Idempotent by owner.* The same ticket asked again (its answer was lost) gets the same answer: the
   grant it already has, never shortened, or its place in the queue. An owner is never used for a
   second attempt, so whatever is known of it belongs to this one; an owner in use for something
   else is refused with `ConfigError`.
3. *Only by the owner.* A release or renewal by anybody else changes nothing. Nothing is re-created:
   a lease that has ended is `GONE`, also if nobody has taken the lock since.
4. *The store's clock* decides when a lease ends, never a client's wall clock.
5. *The queue is on the store.* A ticket that may not have the lock, and has `queue`, is put into it in
   the same step. `renew` is its heartbeat; without one for a while it loses its place. Whatever step
   finds the lock free (a release, a heartbeat, anybody's acquire) grants it to the first living
   waiter for the *claim window* and wakes exactly that one. A backend that has no queue answers
   `Busy`, says `fair=False` in its guarantees, and the engine backs off and asks again.
6. *Wake-ups are hints.* They may be lost or come for nothing; heartbeats carry correctness. A wake-up
   that names the token lets the waiter start at once.
7. *Fail closed.* What cannot be done or is not known raises `BackendUnavailable`, at the latest at
   `deadline`. A call that raised, or was cancelled, may still have happened: the engine will then send
   `release` for that owner, and it must take effect *after* the call that it cleans up for (behind
   it on the same connection, or by leaving a tombstone).
8. *Safe to share.* Verbs may be called from many tasks, or many threads, at once.
9. *Closed after an expiry.* `Terms.delay` is for resources that cannot check a fence: a lease that
   ended without a release keeps the lock closed for that long. The engine asks for TTLs that are longer
   by the delay, and counts with the rest. The backend adds it to the claim window of that owner, and
   does not let the entry end with its process.

**Where many leases hang on one thing** that the store expires (an etcd lease, a ZooKeeper session), an
answer may rest on an earlier request than the one that was asked: it says so by `since`, and the
engine counts from there. What has to end by itself (`Ticket.renew` is False, a place that nobody
renews, a release that could not be sent) is then ended by the backend, since the shared thing lives on.
A backend that learns of an end, or of a doubt, by itself may have an attribute `look`: the session
sets it to a function to call, from any thread, with the owners about whom `renew` is to be asked.
A backend that can take several locks in one step may have a method `acquire_all(tickets, deadline)`: it
grants all of them, in their order, and returns the grants; or changes nothing and returns `Busy`. And
`release_all(pairs, deadline)`, which does as `release` for each name and owner.
A backend whose store can refuse an owner may have a method `doubt(owner)`, for those who carry out the
verbs of others: another process may have sent an acquire of this owner that still arrives. The next
`release` of it leaves a tombstone, as if the acquire had been sent by this backend.
A backend that has threads beside its event loop has a method `strand`, which ends them when that loop
was closed and the backend was not.
A backend whose steps hold a lock of this process, so that a signal's handler must not wait for the step
beneath it, has a method `is_inside(thread)`: whether the thread of that ident is in such a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ... import forks
from ..._runtime.aio import Poller, Signal
from ...clock import Clock
from ...entries import Claim
from ...guarantees import Guarantees
from ...model import Busy, Gone, Granted, Label, LockState, Observation, Outcome, Queued


class Terms:
    """The lock as it is asked for: made once for all attempts, and not changed."""

    __slots__ = (
        "barge",
        "bound",
        "capacity",
        "delay",
        "home",
        "kind",
        "label",
        "name",
        "prepared",
        "renew",
        "ttl",
        "weight",
    )

    def __init__(
        self,
        name: str,
        ttl: float,
        label: Label,
        weight: int = 1,
        capacity: int = 1,
        kind: str = "lock",
        barge: bool = False,
        renew: bool = True,
        delay: float = 0.0,
        bound: bool = True,
    ) -> None:
        self.name = name
        self.ttl = ttl
        """Seconds that the store keeps a lease from each renewal on, with the delay."""
        self.label = label
        self.weight = weight
        self.capacity = capacity
        self.kind = kind
        self.barge = barge
        self.renew = renew
        """False: a lease is to end with its TTL, whatever else is kept alive beside it."""
        self.delay = delay
        """Seconds for which the lock stays closed behind a lease that ended without a release."""
        self.bound = bound
        """False: the lease is another process's, who asks through us, and does not end with ours."""
        self.home: object = None
        """The session that these terms were built for."""
        self.prepared: Any = None
        """A place for what the backend makes of these terms once, for every attempt."""


class Ticket:
    """One attempt to get a lock, from before it is asked for until it is granted or given up."""

    __slots__ = (
        "__weakref__",
        "_made_in",
        "_signal",
        "_told",
        "grant",
        "owner",
        "queue",
        "runner",
        "slot",
        "terms",
        "ttl",
        "until",
    )

    def __init__(self, terms: Terms, owner: str, queue: bool = True) -> None:
        self.terms = terms
        self.owner = owner
        self.ttl = terms.ttl
        """The TTL that was asked for, until the store says that it gives another."""
        self.queue = queue
        self.slot: int | None = None
        """The slot that the engine has heard of, in a grant or a renewal."""
        self.until: float | None = None
        """The time on the backend's clock at which the attempt will be given up; None: never."""
        self.grant: Granted | None = None
        self.runner: object = None
        """The task or thread whose attempt it is."""
        self._told = False
        self._signal: Signal | None = None
        self._made_in = forks.generation

    @property
    def name(self) -> str:
        return self.terms.name

    @property
    def label(self) -> Label:
        return self.terms.label

    @property
    def weight(self) -> int:
        return self.terms.weight

    @property
    def capacity(self) -> int:
        return self.terms.capacity

    @property
    def kind(self) -> str:
        return self.terms.kind

    @property
    def barge(self) -> bool:
        return self.terms.barge

    @property
    def renew(self) -> bool:
        return self.terms.renew

    def attach(self, signal: Signal | None) -> None:
        """Has `signal` set at every `tell`, for a backend that waits in a way of its own."""
        self._signal = signal
        if signal is not None and self._told:
            signal.set()

    def tell(self, grant: Granted | None = None) -> None:
        """Wakes the waiter, from any thread: it was granted, or it should ask. Called by backends."""
        if grant is not None:
            self.grant = grant
        # First the mark, then the look for somebody who waits; `wait` does it the other way round.
        self._told = True
        if self._signal is not None:
            self._signal.set()

    async def wait(
        self, clock: Clock, until: float | None, poller: Poller | None = None
    ) -> Granted | None:
        """Waits for the next `tell`, or until `until`: for most backends the whole of `Backend.wait`.

        Its waiters serve the `poller`, on whose descriptors wake-ups come.
        """
        if self._signal is None:
            self._signal = Signal(clock, self._made_in)  # most tickets never wait
            if self._told:
                self._signal.set()
        if poller is None:
            await self._signal.wait(until)
        else:
            await poller.attend(self._signal, until)
        grant, self.grant = self.grant, None
        return grant


OBSERVED_FOR = 60.0
"""Seconds for which a store tells an observer of changes; it asks again before they are over."""
BEFORE_ALL = 1
"""A number below those of all changes of an election."""
OPEN_LIMIT = 5.0
"""Seconds in which a store has to be reached, unless the caller has less; and to be let go of."""


class Backend(Protocol):
    """An adapter to one kind of store. `deadline` is a time on `clock` by which a call must end."""

    @property
    def guarantees(self) -> Guarantees: ...

    @property
    def clock(self) -> Clock:
        """The clock on which the engine counts its own deadlines."""
        ...

    @property
    def claim_window(self) -> float:
        """Seconds for which a lock is handed to a waiter that has not confirmed it."""
        ...

    @property
    def heartbeat(self) -> float:
        """Seconds between two renewals of a waiter."""
        ...

    async def open(self, deadline: float) -> None:
        """Reaches the store, and refuses one that is not fit to be used. Called once, first.

        If it fails it leaves nothing open.
        """
        ...

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        """Grants the lock; or enqueues the ticket, if `ticket.queue`; or leaves nothing: `Busy`.

        A grant that is `handed` says that it was enqueued, and is not any more: another's release
        came before this was answered.
        """
        ...

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        """Keeps leases and places in the queue alive; returns one outcome for each, in order.

        `Renewed`: it is held, for its whole TTL from now (this also tells a waiter that it has
        been granted). `Waiting`: still in the queue. `GONE`: neither. `UNKNOWN`: no answer for this
        one. A renewal never shortens. Each heartbeat also admits whoever is next.
        """
        ...

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        """Frees the lease, or leaves the queue, in one step, and hands on to the next waiter.

        True if a lease that had not ended was freed. Repeating it is harmless.
        """
        ...

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Waits until this queued ticket is told something, or until `until`.

        Returns the grant if the wake-up carried it; None means ask, or look at the time.
        """
        ...

    async def inspect(self, name: str, deadline: float) -> LockState:
        """Returns the lock as it stands, without owners that are dead or expired."""
        ...

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        """Returns every lock with a holder or waiter whose name starts with `prefix`, by name.

        Where it takes many requests, each may have as long as the first: it goes on past `deadline`
        while the store answers.
        """
        ...

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        """Ends every holder's lease and raises the token; leaves an audit record naming `actor`.

        Every later token is higher than `above`, also if there was no holder. Where the store cannot
        raise it that far it raises `GuaranteeError`, and has done nothing.

        Where the guarantees say `recall`, the holders' backends learn of it at once, and `look`.
        """
        ...

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        """Gives a lease that is held less weight, or its label another text; the token stays.

        Less weight (a writer becomes a reader) admits whoever fits then, as a release does. Another
        text is a change of an election. Repeating it is harmless. False: the lease has ended.
        """
        ...

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        """Lets a lease last for exactly `ttl` seconds from now, whatever becomes of us.

        It ends neither with our process nor with our connection, and is not renewed; `release` and
        `adopt` still end it. The one verb that may shorten. Repeating it is harmless. False: the lease
        has ended.
        """
        ...

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        """Makes the lease of the owner `giver` that of the ticket, in one step, with a new token.

        Nobody else is granted the lock in between, and what is waited for is not jumped: it was
        held, and still is. Of a semaphore it keeps the slot. Idempotent by the ticket's owner. `GONE`:
        `giver` holds nothing. Another weight, capacity or kind than the giver's is refused with
        `ConfigError`. From then on the giver's renewals and releases find nothing.
        """
        ...

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        """Returns the changes of an election with a number above `after`; for 0 the latest alone.

        An observer that was told of none asks with `BEFORE_ALL` from then on; as long as nobody has
        been elected, it is told of none again.
        It does first what is due at the lock. At least the last 32 changes are kept, for a day. From
        this step on, and for `OBSERVED_FOR` seconds, the next change wakes `ticket`, for which the
        caller then waits as for a lock: a hint as all wake-ups. The owner of the ticket serves for
        nothing else.
        """
        ...

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        """Ends what `observe` began, if the store still knows it."""
        ...

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        """Returns a descriptor for a child process to inherit: the lease does not end with us then.

        None where a lease does not end with its process: the child needs nothing then.
        """
        ...

    async def close(self, deadline: float | None = None) -> None:
        """Lets go of the store, by `deadline` if it does not answer; None: in a second or two."""
        ...
