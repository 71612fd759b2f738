"""The checker: what must be true of a run, whatever happened in it.

*Tokens*, always, unless the store declares a fault that breaks them: no two grants of a lock share a
token, and an attempt that began after another's grant was known gets a higher one.

*Exclusion*, while no clock was faulted and nothing happened that the store declares: no two clients
hold a lock at once, each by its own clock; a grant that ended before another's is known has the lower
token; and no holder finds that the register has already seen a newer token than its own.

*The register* never accepts a write with an older token than it has seen. That is what a fence is for;
without one, this is how a plain lock is caught.

*Afterwards* every client that lives gets the lock again, and nothing stays behind on the store.
"""

from __future__ import annotations

from .trace import Trace


class Grant:
    """One lease that a client had, and when the client knew that it had it."""

    __slots__ = ("asked_at", "client", "ended_at", "granted_at", "lock", "seen_at", "token")

    def __init__(
        self, lock: str, client: str, token: int, asked_at: float, granted_at: float
    ) -> None:
        self.lock = lock
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
        self, lock: str, client: str, token: int, asked_at: float, granted_at: float
    ) -> Grant:
        grant = Grant(lock, client, token, asked_at, granted_at)
        self.grants.append(grant)
        return grant

    def note_held(self, grant: Grant, now: float) -> None:
        """Notes that the client has looked, and holds the lock."""
        grant.seen_at = now
        highest = self._highest.get(grant.lock, 0)
        if self.exclusion_promised and highest > grant.token:
            self.report(f"{grant}, and holds it while {highest} has written already")

    def write(self, grant: Grant, fenced: bool) -> None:
        """Takes a write that arrives at the register, perhaps late."""
        highest = self._highest.get(grant.lock, 0)
        if grant.token < highest:
            if fenced:
                self.stale_refused += 1
            else:
                self.report(f"{grant}, and its write was accepted after one of {highest}")
        else:
            self._highest[grant.lock] = grant.token

    def compare_grants(self) -> None:
        """Compares all grants of each lock with each other, at the end of a run."""
        by_lock: dict[str, list[Grant]] = {}
        for grant in self.grants:
            by_lock.setdefault(grant.lock, []).append(grant)
        for grants in by_lock.values():
            for i, one in enumerate(grants):
                for other in grants[i + 1 :]:
                    self._compare(one, other)

    def _compare(self, one: Grant, other: Grant) -> None:
        if self.order_promised:
            if one.token == other.token:
                self.report(f"{one}, and {other}: the same token twice")
            for first, second in ((one, other), (other, one)):
                if first.granted_at < second.asked_at and second.token < first.token:
                    self.report(f"{first} before {second.client} asked, and {second}: it fell")
        if self.exclusion_promised:
            if one.granted_at < other.seen_at and other.granted_at < one.seen_at:
                self.report(
                    f"{one} from {one.granted_at:.6f} to {one.seen_at:.6f}, and {other} from "
                    f"{other.granted_at:.6f} to {other.seen_at:.6f}: two holders at once"
                )
            for first, second in ((one, other), (other, one)):
                ended = first.ended_at
                if ended is not None and ended < second.granted_at and second.token < first.token:
                    self.report(f"{first} until {ended:.6f}, and later {second}: it fell")
