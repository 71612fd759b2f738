"""The checker: what must be true of a run, whatever happened in it.

*Tokens*, always, unless the store declares a fault that breaks them: no two grants of a lock share a
token, and an attempt that began after another's grant was known gets a higher one.

*Exclusion*, while no clock was faulted and nothing happened that the store declares: no two clients
hold a lock at once, each by its own clock; a grant that ended before another's is known has the lower
token; and no holder finds that the register has already seen a newer token than its own.

*Locks that several hold at once*: the weights of all holders never exceed the capacity, no two holders
of a semaphore have the same slot, and tokens rise from a grant to those that conflict with it, or that
were asked for after its end. Readers write nothing; each slot of a semaphore has a register of its own.

*The register* never accepts a write with an older token than it has seen. That is what a fence is for;
without one, this is how a plain lock is caught.

*Afterwards* every client that lives gets the lock again, and nothing stays behind on the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .trace import Trace

if TYPE_CHECKING:
    from ..aio import Lease
    from .kinds import Wish


class Grant:
    """One lease that a client had, and when the client knew that it had it."""

    __slots__ = (
        "asked_at",
        "capacity",
        "client",
        "ended_at",
        "granted_at",
        "lock",
        "register",
        "seen_at",
        "slot",
        "token",
        "weight",
        "writes",
    )

    def __init__(
        self,
        lock: str,
        client: str,
        token: int,
        asked_at: float,
        granted_at: float,
        weight: int = 1,
        capacity: int = 1,
        slot: int | None = None,
    ) -> None:
        self.lock = lock
        self.weight = weight
        self.capacity = capacity
        self.slot = slot
        self.writes = slot is not None or weight == capacity
        """Whether the holder may write: a reader may not, nor one of a semaphore without a slot."""
        self.register = lock if slot is None else f"{lock}#{slot}"
        """The resource that it writes to."""
        self.client = client
        self.token = token
        self.asked_at = asked_at
        self.granted_at = granted_at
        self.seen_at = -1.0
        """The time at which the client last found the lease held; -1 if it never looked."""
        self.ended_at: float | None = None
        """The time at which the client gave the lease back, or learned that it had ended."""

    def __str__(self) -> str:
        return f"{self.client} had {self.lock!r} as {self.token}"


class Checker:
    """The violations of one run. `exclusion_promised` and `order_promised` may be switched off."""

    def __init__(self, trace: Trace) -> None:
        self.violations: list[str] = []
        self.grants: list[Grant] = []
        self.stale_refused = 0
        """Writes with an old token that the fence refused."""
        self._highest: dict[str, int] = {}
        """By lock: the highest token that has written to the register."""
        self._trace = trace
        self.exclusion_promised = True
        """Whether the store still promises exclusion, after all the faults so far."""
        self.order_promised = True
        """Whether the store still promises the order of tokens."""

    def report(self, violation: str) -> None:
        self.violations.append(violation)
        self._trace.add("CHECKER", "%s", violation)

    def add_grant(
        self, wish: Wish, client: str, lease: Lease, asked_at: float, granted_at: float
    ) -> Grant:
        share = (wish.weight, wish.capacity, lease.slot)
        grant = Grant(wish.name, client, lease.token, asked_at, granted_at, *share)
        self.grants.append(grant)
        return grant

    def note_held(self, grant: Grant, now: float) -> None:
        """Notes that the client has looked, and holds the lock."""
        grant.seen_at = now
        highest = self._highest.get(grant.register, 0)
        if self.exclusion_promised and highest > grant.token:
            self.report(f"{grant}, and holds it while {highest} has written already")

    def write(self, grant: Grant, fenced: bool) -> None:
        """Takes a write that arrives at the register, perhaps late."""
        highest = self._highest.get(grant.register, 0)
        if grant.token < highest:
            if fenced:
                self.stale_refused += 1
            else:
                self.report(f"{grant}, and its write was accepted after one of {highest}")
        else:
            self._highest[grant.register] = grant.token

    def compare_grants(self) -> None:
        """Compares all grants of each lock with each other, at the end of a run."""
        by_lock: dict[str, list[Grant]] = {}
        for grant in self.grants:
            by_lock.setdefault(grant.lock, []).append(grant)
        for grants in by_lock.values():
            for i, one in enumerate(grants):
                for other in grants[i + 1 :]:
                    if one.weight + other.weight > one.capacity:
                        self._compare(one, other)
                    else:
                        self._compare_sharers(one, other)
                self._add_up(one, grants)

    def _add_up(self, one: Grant, grants: list[Grant]) -> None:
        """Adds up the weights of those who held the lock when `one` had just been granted it."""
        if not self.exclusion_promised or one.seen_at <= one.granted_at:
            return
        held = [
            other
            for other in grants
            if other is one or other.granted_at <= one.granted_at < other.seen_at
        ]
        if sum(other.weight for other in held) > one.capacity:
            self.report(f"{'; '.join(map(str, held))}: more at once than {one.capacity} permits")

    def _compare_sharers(self, one: Grant, other: Grant) -> None:
        """Compares two grants that do not conflict."""
        if self.order_promised:
            if one.token == other.token:
                self.report(f"{one}, and {other}: the same token twice")
            for first, second in ((one, other), (other, one)):
                ended = first.ended_at
                if ended is not None and ended < second.asked_at and second.token < first.token:
                    self.report(f"{first} until {ended:.6f}, and later {second}: it fell")
        if self.exclusion_promised and one.slot is not None and one.slot == other.slot:
            self._report_overlap(one, other, f"both in slot {one.slot}")

    def _compare(self, one: Grant, other: Grant) -> None:
        if self.order_promised:
            if one.token == other.token:
                self.report(f"{one}, and {other}: the same token twice")
            for first, second in ((one, other), (other, one)):
                if first.granted_at < second.asked_at and second.token < first.token:
                    self.report(f"{first} before {second.client} asked, and {second}: it fell")
        if self.exclusion_promised:
            self._report_overlap(one, other, "two holders at once")
            for first, second in ((one, other), (other, one)):
                ended = first.ended_at
                if ended is not None and ended < second.granted_at and second.token < first.token:
                    self.report(f"{first} until {ended:.6f}, and later {second}: it fell")

    def _report_overlap(self, one: Grant, other: Grant, what: str) -> None:
        if one.granted_at < other.seen_at and other.granted_at < one.seen_at:
            self.report(
                f"{one} from {one.granted_at:.6f} to {one.seen_at:.6f}, and {other} from "
                f"{other.granted_at:.6f} to {other.seen_at:.6f}: {what}"
            )
