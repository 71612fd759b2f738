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

from itertools import combinations, groupby
from typing import TYPE_CHECKING, NamedTuple

from .trace import Trace

if TYPE_CHECKING:
    from ..aio import Lease
    from .kinds import Wish

EXCLUSION, TOKENS, REGISTER = "exclusion", "token order", "register"
"""The rules, as a violation names them."""


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


class Violation(NamedTuple):
    """A rule that was broken: how, and for how many seconds."""

    rule: str
    text: str
    seconds: float


class Checker:
    """The violations of one run. `exclusion_promised` and `order_promised` may be switched off."""

    def __init__(self, trace: Trace | None = None) -> None:
        self.violations: list[str] = []
        self.found: list[Violation] = []
        """The violations, each with the rule that was broken."""
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
        self.sharers_unique = True
        """Whether the store promises that those who share a lock at the same time differ in token."""

    def report(self, text: str, rule: str = "", seconds: float = 0.0) -> None:
        """Reports that `rule` was broken, and for how long, where that can be told."""
        self.violations.append(text)
        self.found.append(Violation(rule, text, seconds))
        if self._trace is not None:
            self._trace.add("CHECKER", "%s", text)

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
            self.report(f"{grant}, and holds it while {highest} has written already", EXCLUSION)

    def write(self, grant: Grant, fenced: bool) -> None:
        """Takes a write that arrives at the register, perhaps late."""
        highest = self._highest.get(grant.register, 0)
        if grant.token < highest:
            if fenced:
                self.stale_refused += 1
            else:
                self.report(f"{grant}, and its write was accepted after one of {highest}", REGISTER)
        else:
            self._highest[grant.register] = grant.token

    def compare_grants(self) -> None:
        """Compares all grants of each lock with each other, at the end of a run."""
        by_lock: dict[str, list[Grant]] = {}
        for grant in self.grants:
            by_lock.setdefault(grant.lock, []).append(grant)
        for grants in by_lock.values():
            grants.sort(key=lambda grant: grant.granted_at)
            if self.order_promised:
                self._compare_tokens(grants)
            if self.exclusion_promised:
                self._find_overlaps(grants)
                self._compare_ends(grants)

    def _compare_tokens(self, grants: list[Grant]) -> None:
        """Finds tokens that were given twice, and tokens that fell."""
        by_token: dict[int, list[Grant]] = {}
        for grant in grants:
            by_token.setdefault(grant.token, []).append(grant)
        for same in by_token.values():
            for one, other in combinations(same, 2):
                if conflict(one, other) or self.sharers_unique or _same_slot(one, other):
                    self.report(f"{one}, and {other}: the same token twice", TOKENS)
        ended = sorted((g for g in grants if g.ended_at is not None), key=_end_of)
        asked = sorted(grants, key=lambda grant: grant.asked_at)
        granted_before, ended_before = Highest(), Highest()
        begun = gone = 0
        for second in asked:
            while begun < len(grants) and grants[begun].granted_at < second.asked_at:
                granted_before.add(grants[begun])
                begun += 1
            while gone < len(ended) and _end_of(ended[gone]) < second.asked_at:
                ended_before.add(ended[gone])
                gone += 1
            for first in (granted_before.rival_of(second), granted_before.in_slot_of(second)):
                if first is not None and second.token < first.token:
                    self.report(
                        f"{first} before {second.client} asked, and {second}: it fell", TOKENS
                    )
            first = ended_before.sharer_with(second)
            if first is not None and second.token <= first.token:
                fell = "it fell" if second.token < first.token else "it did not rise"
                self.report(
                    f"{first} until {first.ended_at:.6f}, and later {second}: {fell}", TOKENS
                )

    def _compare_ends(self, grants: list[Grant]) -> None:
        """Finds grants whose token is lower than that of a rival which had ended before."""
        ended = sorted((g for g in grants if g.ended_at is not None), key=_end_of)
        before = Highest()
        gone = 0
        for second in grants:
            if second.seen_at < second.granted_at:
                continue  # it was never seen held: its client may have been told late
            while gone < len(ended) and _end_of(ended[gone]) < second.granted_at:
                before.add(ended[gone])
                gone += 1
            first = before.rival_of(second)
            if first is not None and second.token < first.token:
                self.report(
                    f"{first} until {first.ended_at:.6f}, and {second}, which was granted before that "
                    "and known only later",
                    EXCLUSION,
                )

    def _find_overlaps(self, grants: list[Grant]) -> None:
        """Finds those who held the lock at once, each by its own clock, and were too many."""
        held: list[Grant] = []
        """The grants that were made earlier or at the same time, and were seen held after that."""
        for now, group in groupby(grants, key=lambda grant: grant.granted_at):
            begun = list(group)
            held = [grant for grant in held if grant.seen_at > now]
            for one in begun:
                for other in held:
                    if one.seen_at > other.granted_at:
                        self._report_overlap(other, one)
                held.append(one)
            held = [grant for grant in held if grant.seen_at > now]
            if sum(grant.weight for grant in held) <= begun[0].capacity:
                continue
            for one in begun:
                if one.seen_at > now and one.weight < one.capacity:
                    holders = "; ".join(map(str, held))
                    self.report(f"{holders}: more at once than {one.capacity} permits", EXCLUSION)

    def _report_overlap(self, one: Grant, other: Grant) -> None:
        """Reports that both held the lock at once, unless that is allowed."""
        if one.granted_at >= other.seen_at or other.granted_at >= one.seen_at:
            return  # one of them never looked
        if conflict(one, other):
            what = "two holders at once"
        elif _same_slot(one, other):
            what = f"both in slot {one.slot}"
        else:
            return
        seconds = min(one.seen_at, other.seen_at) - max(one.granted_at, other.granted_at)
        self.report(
            f"{one} from {one.granted_at:.6f} to {one.seen_at:.6f}, and {other} from "
            f"{other.granted_at:.6f} to {other.seen_at:.6f}: {what}",
            EXCLUSION,
            seconds,
        )


class Highest:
    """The grants with the highest tokens of those that were added: by weight, and by slot."""

    def __init__(self) -> None:
        self._by_weight: dict[int, Grant] = {}
        self._by_slot: dict[int, Grant] = {}

    def add(self, grant: Grant) -> None:
        _raise(self._by_weight, grant.weight, grant)
        if grant.slot is not None:
            _raise(self._by_slot, grant.slot, grant)

    def rival_of(self, grant: Grant) -> Grant | None:
        """Returns the highest of those that conflict with `grant`."""
        return self._highest(grant, True)

    def sharer_with(self, grant: Grant) -> Grant | None:
        """Returns the highest of those that do not conflict with `grant`."""
        return self._highest(grant, False)

    def in_slot_of(self, grant: Grant) -> Grant | None:
        """Returns the highest of those that had the slot of `grant`, unless they conflict."""
        found = None if grant.slot is None else self._by_slot.get(grant.slot)
        return None if found is None or conflict(found, grant) else found

    def _highest(self, grant: Grant, conflicting: bool) -> Grant | None:
        found = None
        for one in self._by_weight.values():
            if conflict(one, grant) is conflicting and (found is None or one.token > found.token):
                found = one
        return found


def _raise(highest: dict[int, Grant], key: int, grant: Grant) -> None:
    known = highest.get(key)
    if known is None or grant.token > known.token:
        highest[key] = grant


def conflict(one: Grant, other: Grant) -> bool:
    """Tells whether the two may not hold the lock at once."""
    return one.weight + other.weight > one.capacity


def _same_slot(one: Grant, other: Grant) -> bool:
    return one.slot is not None and one.slot == other.slot


def _end_of(grant: Grant) -> float:
    assert grant.ended_at is not None
    return grant.ended_at
