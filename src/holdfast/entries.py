"""Entries: what a store keeps of each holder and each waiter, and the requests that change them.

Values only. `ledger` has the rules; each store that keeps its entries as rows implements `Rows`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple, Protocol

from .model import Change, Label

SEPARATOR = "\x1f"
"""The character between the namespace and the name of a lock; neither can contain it."""
CLAIM_WINDOW = 2.0
"""Seconds for which a lock is handed over to a waiter that has not confirmed it."""
HEARTBEAT = 1.0
"""Seconds between two heartbeats of a waiter."""
MISSED_HEARTBEATS = 5
"""Heartbeats without which a waiter loses its place in the queue."""


CHANGES_KEPT = 64
"""The changes of one election that are kept for those who observe it, for `CHANGES_KEPT_FOR` seconds
after the last of them."""
CHANGES_KEPT_FOR = 86400.0
HIGHEST_CHANGE = 2**63 - 1
"""The highest number of a change that can be kept. Redlock keeps none, and has numbers beyond it."""


class Entry:
    """One row: a holder (`token` > 0) or a waiter (`token` == 0) of one lock."""

    __slots__ = (
        "address",
        "barge",
        "capacity",
        "claim",
        "confirmed",
        "expires",
        "kept_until",
        "kind",
        "label",
        "name",
        "owner",
        "patience",
        "process",
        "seq",
        "since",
        "tether",
        "token",
        "ttl",
        "weight",
    )

    def __init__(
        self,
        owner: str,
        name: str,
        seq: int,
        token: int,
        expires: float,
        ttl: float,
        weight: int,
        capacity: int,
        kind: str,
        barge: int,
        confirmed: int,
        claim: float,
        patience: float,
        since: float,
        process: str,
        address: str,
        tether: str,
        kept_until: float,
        label: Label,
    ) -> None:
        self.owner = owner
        self.name = name
        self.seq = seq
        self.token = token
        self.expires = expires
        self.ttl = ttl
        self.weight = weight
        self.capacity = capacity
        self.kind = kind
        self.barge = barge
        self.confirmed = confirmed
        self.claim = claim
        self.patience = patience
        self.since = since
        self.process = process
        self.address = address
        self.tether = tether
        self.kept_until = kept_until
        """When a detached lease ends, in seconds since the epoch: it outlives a boot. 0: it is not."""
        self.label = label


class AcquireRequest:
    """The request of one owner for a lock, as the ledger takes it."""

    __slots__ = (
        "barge",
        "bound",
        "capacity",
        "claim",
        "kind",
        "label",
        "name",
        "owner",
        "patience",
        "queue",
        "ttl",
        "weight",
    )

    def __init__(
        self,
        name: str,
        owner: str,
        ttl: float,
        weight: int,
        capacity: int,
        kind: str,
        queue: bool,
        barge: bool,
        claim: float,
        patience: float,
        label: Label,
        bound: bool = True,
    ) -> None:
        self.name = name
        self.owner = owner
        self.ttl = ttl
        self.weight = weight
        self.capacity = capacity
        self.kind = kind
        self.queue = queue
        self.barge = barge
        self.claim = claim
        """Seconds for which the lock is handed over to this owner. The owner counts on exactly that, so
        it is part of the request, and not left to the releaser that hands over."""
        self.patience = patience
        """Seconds for which the owner keeps its place in the queue without a heartbeat."""
        self.label = label
        self.bound = bound
        """Whether the entry may end with its process."""


class Claim(NamedTuple):
    """The claim of one owner in a renewal: to its lease, or to its place in the queue."""

    name: str
    owner: str
    ttl: float


class WakeUp(NamedTuple):
    """A wake-up to send once the transaction stands: `token` is that of a grant, or 0 for a hint."""

    name: str
    owner: str
    process: str
    address: str
    token: int


class Rows(Protocol):
    """The entries of one store, inside one transaction of it."""

    def now(self) -> float:
        """Returns the time on the store's clock."""
        ...

    def wall(self) -> float:
        """Returns the seconds since the epoch, to show to people."""
        ...

    def of(self, name: str) -> Iterable[Entry]:
        """Returns the holders of a lock, then its waiters in the order of their arrival. They are read
        lazily, and not read on once anything has been written."""
        ...

    def find(self, name: str, owner: str) -> Entry | None:
        """Returns the entry of `owner`, if there is one."""
        ...

    def renew_held(self, claim: Claim) -> int | None:
        """Renews a lease that was confirmed, and returns its token; None if it is not such a one."""
        ...

    def keep_waiting(self, name: str, owners: Sequence[str]) -> bool:
        """Renews the places of these owners in the queue; returns False if one of them is not a waiter
        whose time has not ended, or barges."""
        ...

    def alive(self, entry: Entry) -> bool:
        """Returns False only if the process behind the entry is known to be dead."""
        ...

    def arrival(self, name: str) -> int:
        """Returns a number above that of every waiter for this lock."""
        ...

    def mint(self, taken: Container[int] = (), permits: int = 1, above: int = 0) -> int:
        """Returns a token above all minted before, and above that number; of a semaphore, in a slot
        that is not `taken`."""
        ...

    def rewrite(self, entry: Entry) -> None:
        """Writes back what is changed in a lease that is held: weight, label, expires, confirmed,
        process, tether, kept_until."""
        ...

    def note(self, name: str, change: Change) -> Iterable[WakeUp]:
        """Adds a change of an election, keeps the last `CHANGES_KEPT`, and returns its observers'
        wake-ups."""
        ...

    def changes(self, name: str, after: int) -> Iterable[Change]:
        """Returns the changes above the number `after`, in order; for 0 the last alone."""
        ...

    def observe(self, name: str, observer: WakeUp, until: float) -> None:
        """Has `observer` returned by `note`, until that time on the store's clock."""
        ...

    def unobserve(self, name: str, owner: str) -> None:
        """Ends what `observe` began."""
        ...

    def add(self, entry: Entry) -> None:
        """Adds a new entry."""
        ...

    def save(self, entry: Entry, was_waiting: bool) -> None:
        """Writes back what may change: token, expires, confirmed, since."""
        ...

    def drop(self, entry: Entry) -> None:
        """Removes an entry."""
        ...

    def drop_held(self, name: str, owner: str) -> bool:
        """Removes the entry of `owner` if it is a holder whose lease has not ended; returns whether.

        An election's stays, and False is returned: the ledger has to note that nobody leads.
        """
        ...
