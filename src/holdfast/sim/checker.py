"""What must be true of a run, whatever happened in it.

*Tokens*, always, unless the store declares a fault that breaks them: no two grants of a lock share a
token, and an attempt that began after another's grant was known gets a higher one.

*Exclusion*, while no clock was faulted and nothing happened that the store declares: no two clients
hold a lock at once, each by its own clock; a grant that ended before another's is known has the lower
token; and no holder finds that the register has already seen a newer token than its own.

*The register* never accepts a write with an older token than it has seen (that is what a fence is
for; without one this is how a plain lock is caught).

*Afterwards*: everybody who lives gets the lock again, and nothing stays behind on the store.
"""

from __future__ import annotations

from .trace import Story


class Grant:
    """One lease that a client had, and when it knew that it had it."""

    __slots__ = ("asked", "client", "ended", "got", "lock", "seen", "token")

    def __init__(self, lock: str, client: str, token: int, asked: float, got: float) -> None:
        self.lock = lock
        self.client = client
        self.token = token
        self.asked = asked
        self.got = got
        self.seen = -1.0
        """When it last looked and found it held. Who stood still on the threshold may never have."""
        self.ended: float | None = None
        """When it was over, by its own doing or to its knowledge."""

    def __str__(self) -> str:
        return f"{self.client} had {self.lock!r} as {self.token}"


class Checker:
    def __init__(self, story: Story) -> None:
        self.violations: list[str] = []
        self.grants: list[Grant] = []
        self.stale_refused = 0
        self._highest: dict[str, int] = {}
        self._story = story
        self.excluded = True
        """Whether exclusion is promised, after all the faults so far."""
        self.ordered = True
        """Whether the order of tokens is."""

    def broken(self, what: str) -> None:
        self.violations.append(what)
        self._story.tell("CHECKER", "%s", what)

    def granted(self, lock: str, client: str, token: int, asked: float, got: float) -> Grant:
        grant = Grant(lock, client, token, asked, got)
        self.grants.append(grant)
        return grant

    def still_held(self, grant: Grant, now: float) -> None:
        """Its client has looked, and holds it."""
        grant.seen = now
        highest = self._highest.get(grant.lock, 0)
        if self.excluded and highest > grant.token:
            self.broken(f"{grant}, and holds it while {highest} has written already")

    def write(self, grant: Grant, fenced: bool) -> None:
        """A write arrives at the resource, perhaps late."""
        highest = self._highest.get(grant.lock, 0)
        if grant.token < highest:
            if fenced:
                self.stale_refused += 1
            else:
                self.broken(f"{grant}, and its write was accepted after one of {highest}")
        else:
            self._highest[grant.lock] = grant.token

    def judge(self) -> None:
        """Of all grants, at the end."""
        by_lock: dict[str, list[Grant]] = {}
        for grant in self.grants:
            by_lock.setdefault(grant.lock, []).append(grant)
        for grants in by_lock.values():
            for i, one in enumerate(grants):
                for other in grants[i + 1 :]:
                    self._compare(one, other)

    def _compare(self, one: Grant, other: Grant) -> None:
        if self.ordered:
            if one.token == other.token:
                self.broken(f"{one}, and {other}: the same token twice")
            for first, second in ((one, other), (other, one)):
                if first.got < second.asked and second.token < first.token:
                    self.broken(f"{first} before {second.client} asked, and {second}: it fell")
        if self.excluded:
            if one.got < other.seen and other.got < one.seen:
                self.broken(
                    f"{one} from {one.got:.6f} to {one.seen:.6f}, and {other} from "
                    f"{other.got:.6f} to {other.seen:.6f}: two holders at once"
                )
            for first, second in ((one, other), (other, one)):
                ended = first.ended
                if ended is not None and ended < second.got and second.token < first.token:
                    self.broken(f"{first} until {ended:.6f}, and later {second}: it fell")
