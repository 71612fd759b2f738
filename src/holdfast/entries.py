"""What a store keeps of a lock: an entry for each holder and each waiter; and how it is asked.

Values only. `ledger` has the rules; each store that keeps its entries as rows implements `Rows`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple, Protocol

from .model import Label

SEPARATOR = "\x1f"
"""Between the namespace and the name of a lock; neither can hold it."""
CLAIM_WINDOW = 2.0
"""Seconds for which a lock is handed to a waiter that has not yet answered."""
HEARTBEAT = 1.0
"""Seconds between a waiter's signs of life."""
MISSED_HEARTBEATS = 5
"""After so many a waiter loses its place."""


class Entry:
    """One row: a holder (`token` > 0) or a waiter (`token` == 0) of one lock."""

    __slots__ = (
        "address",
        "barge",
        "capacity",
        "claim",
        "confirmed",
        "expires",
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
        self.label = label


class Ask:
    """What somebody asks for, and who is asking."""

    __slots__ = (
        "barge",
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
        """For how long the lock is handed to this one. It counts on exactly that, so it is said with
        the request, and not left to whoever hands it over."""
        self.patience = patience
        """How long without a heartbeat it keeps its place."""
        self.label = label


class Claim(NamedTuple):
    """One entry to keep alive: a lease to renew, or a place in the queue."""

    name: str
    owner: str
    ttl: float


class Wake(NamedTuple):
    """A message to send once the transaction stands: `token` if it was granted, 0 for a hint."""

    name: str
    owner: str
    process: str
    address: str
    token: int


class Rows(Protocol):
    """One store's rows, inside one transaction of it."""

    def now(self) -> float:
        """The store's clock."""
        ...

    def wall(self) -> float: ...

    def of(self, name: str) -> Iterable[Entry]:
        """The holders of a lock, then its waiters in the order of their arrival. Read lazily, and
        not read on once anything has been written."""
        ...

    def find(self, name: str, owner: str) -> Entry | None: ...
    def alive(self, entry: Entry) -> bool:
        """False only if the process behind the entry is known to be dead."""
        ...

    def arrival(self, name: str) -> int:
        """A number above that of everybody who waits for this lock."""
        ...

    def mint(self, taken: Container[int] = (), permits: int = 1) -> int:
        """A token above every token minted before; of a semaphore, in a slot that is not `taken`."""
        ...

    def add(self, entry: Entry) -> None: ...
    def save(self, entry: Entry, was_waiting: bool) -> None:
        """Write back what may change: token, expires, confirmed, since."""
        ...

    def drop(self, entry: Entry) -> None: ...
    def drop_held(self, name: str, owner: str) -> bool:
        """Remove this holder, if it is one and its lease has not ended."""
        ...
