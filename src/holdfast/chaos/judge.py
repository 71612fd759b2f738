"""The judge: reads the history of a run and says what was seen in it.

The rules are the simulator's (`holdfast.sim.checker`). What a process knew counts, not what was true
elsewhere: a holder holds from its grant until it last looked and found its lease held. A process that
stands still looks at nothing, so it is not blamed for what it could not know; how long it slept through
the end of its lease is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..sim.checker import EXCLUSION, TOKENS, Checker, Grant
from .history import Event
from .registers import FENCED, UNFENCED

SLACK = 0.05
"""Seconds by which a process may be late though its pulse noticed nothing."""


class Hold(Grant):
    """A grant, with what became of it."""

    __slots__ = ("lost_at", "owner", "released_at", "stalled", "ttl")

    def __init__(self, event: Event, asked_at: float) -> None:
        token = event["token"]
        turn = int(event["at"] * 1e6)
        super().__init__(
            event["lock"], event["lane"], turn if token is None else token, asked_at, event["at"]
        )
        self.owner: str = event["owner"]
        self.ttl: float = event["ttl"]
        self.lost_at: float | None = None
        """The time at which the holder was told that the lease is lost."""
        self.stalled = 0.0
        """The seconds for which the process stood still before it was told."""
        self.released_at: float | None = None

    @property
    def believed_until(self) -> float | None:
        """The time until which the holder counted on it; None if it never stopped."""
        ends = [end for end in (self.lost_at, self.released_at) if end is not None]
        return min(ends, default=None)


class Sleeper(NamedTuple):
    """A holder that counted on its lease after a rival had been granted the lock."""

    hold: Hold
    rival: Hold
    seconds: float


class Told(NamedTuple):
    """A holder that lost its lease, and by how much it was told before its rival's grant."""

    hold: Hold
    rival: Hold
    margin: float

    @property
    def excused(self) -> bool:
        """Whether its process stood still for as long as it was late."""
        return -self.margin <= self.hold.stalled + SLACK


class Findings:
    """All that was seen in a run."""

    def __init__(self, events: Sequence[Event], tokens: bool = True) -> None:
        self.holds = _holds(events)
        self.checker = Checker()
        self.checker.order_promised = tokens
        self.checker.grants.extend(self.holds.values())
        self.checker.compare_grants()
        by_lock: dict[str, list[Hold]] = {}
        for hold in self.holds.values():
            by_lock.setdefault(hold.lock, []).append(hold)
        self.sleepers: list[Sleeper] = []
        self.told: list[Told] = []
        for holds in by_lock.values():
            holds.sort(key=lambda hold: hold.granted_at)
            self._compare_neighbours(holds)
        self.writes = {
            register: _judge_writes(events, register, self.holds) for register in (FENCED, UNFENCED)
        }
        self.faults = [event for event in events if event["kind"] == "fault"]
        self.misses = [event for event in events if event["kind"] == "miss"]
        """The faults that hit nothing: something was about to break, and nothing came by."""
        self.recoveries = _recoveries(self.faults, events)
        self.gaps = [gap for holds in by_lock.values() for gap in _gaps(holds, events)]

    def _compare_neighbours(self, holds: Sequence[Hold]) -> None:
        """Compares each holder with the rival that came next."""
        for hold, rival in pairwise(holds):
            until = hold.believed_until
            if until is not None and until > rival.granted_at:
                self.sleepers.append(Sleeper(hold, rival, until - rival.granted_at))
            if hold.lost_at is not None:
                self.told.append(Told(hold, rival, rival.granted_at - hold.lost_at))

    def broken(self, rule: str) -> list[tuple[str, float]]:
        """Returns each break of `rule`, in words and seconds."""
        return [(one.text, one.seconds) for one in self.checker.found if one.rule == rule]

    @property
    def overlaps(self) -> list[tuple[str, float]]:
        return self.broken(EXCLUSION)

    @property
    def disorder(self) -> list[tuple[str, float]]:
        return self.broken(TOKENS)

    @property
    def told_late(self) -> list[Told]:
        """The holds that were told after their rival's grant, though their process was running."""
        return [one for one in self.told if one.margin < 0 and not one.excused]


class Writes(NamedTuple):
    """The writes that arrived at one register."""

    total: int
    tried: int
    """The writes of a holder whose time was over."""
    refused: int
    accepted: int
    """Stale ones that the register took."""


def _holds(events: Iterable[Event]) -> dict[str, Hold]:
    """Returns what became of each grant, by the attempt's owner."""
    asked: dict[str, float] = {}
    holds: dict[str, Hold] = {}
    for event in events:
        kind = event["kind"]
        owner = event.get("owner", "")
        if kind == "ask":
            asked[owner] = event["at"]
        elif kind == "grant":
            holds[owner] = Hold(event, asked[owner])
        elif (hold := holds.get(owner)) is None:
            continue
        elif kind == "seen":
            hold.seen_at = max(hold.seen_at, event["at"])
        elif kind == "told" and hold.released_at is None:  # else it was giving it back anyway
            hold.lost_at = event["at"]
            hold.stalled = event.get("stalled", 0.0)
        elif kind == "release":
            hold.released_at = hold.ended_at = event["at"]
    return holds


def _judge_writes(events: Iterable[Event], register: str, holds: dict[str, Hold]) -> Writes:
    """Returns how many writes came too late, and what the register did with them."""
    owners = {
        (event["lane"], event["number"]): event["owner"]
        for event in events
        if event["kind"] == "send"
    }
    asked: dict[str, float] = {}
    """By lock: the latest time at which a holder had asked whose write was accepted."""
    count = tried = refused = accepted = 0
    for event in events:
        if event["kind"] != "write" or event["register"] != register:
            continue
        count += 1
        hold = holds.get(owners.get((event["from"], event["number"]), ""))
        # A rival that asked after this one's grant, and has written already, came after it.
        stale = event["stale"]
        if hold is not None and hold.granted_at < asked.get(hold.lock, -1.0):
            stale = True
        tried += stale
        if not event["accepted"]:
            refused += stale
        else:
            accepted += stale
            if hold is not None:
                asked[hold.lock] = max(asked.get(hold.lock, -1.0), hold.asked_at)
    return Writes(count, tried, refused, accepted)


def _recoveries(faults: Sequence[Event], events: Iterable[Event]) -> list[float | None]:
    """Returns the seconds from the end of each fault to the next grant; None if there was none."""
    grants = [event["at"] for event in events if event["kind"] == "grant"]
    found: list[float | None] = []
    for fault in faults:
        over = fault["at"] if fault["until"] is None else fault["until"]
        following = next((at for at in grants if at > over), None)
        if following is None:
            found.append(None)
        elif not any(over < other["at"] < following for other in faults):
            found.append(round(following - over, 6))
    return found


QUIET = ("lost-reply", "reset")
"""Faults that leave the store and every process at work."""
LONG = 0.8
"""The share of a TTL after which a lock that nobody has counts as blocked by something left behind."""


def _gaps(holds: Sequence[Hold], events: Iterable[Event]) -> list[float]:
    """Returns the seconds of each time in which nobody had the lock, and nobody could get it.

    Only long ones count, in which somebody was asking all the time and no process and no node was
    down: so something that belongs to nobody was in the way.
    """
    faults = [
        event
        for event in events
        if event["kind"] in ("fault", "miss") and event["name"] not in QUIET
    ]
    found = []
    for hold, following in pairwise(holds):
        if hold.released_at is None:
            continue
        began = max(hold.released_at, following.asked_at)
        gap = following.granted_at - began
        disturbed = any(
            fault["at"] < following.granted_at and (fault["until"] or fault["at"]) > began
            for fault in faults
        )
        if gap > hold.ttl * LONG and not disturbed:
            found.append(gap)
    return found
