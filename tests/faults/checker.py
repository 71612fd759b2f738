"""Reads a log of who held what when, and says what was wrong. It knows nothing of the store.

Each line is one event, written by one `write` to a file opened with O_APPEND:

    <boot clock in ns> <kind> <who> <lock> <token>

    want    is about to ask for the lock
    in      has it
    out     is about to give it back
    kill    is about to be killed: written by the killer, before it is
    quit    has done all that it wanted

A hold is from `in` to `out`, or to `kill`; both are inside of what the store calls the hold, so two
that overlap here certainly overlapped there.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Event(NamedTuple):
    at: int
    kind: str
    who: str
    lock: str
    token: int


class Log:
    """The writing side. Each process opens its own."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, kind: str, who: str, lock: str = "-", token: int = 0) -> None:
        at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        os.write(self._fd, f"{at} {kind} {who} {lock} {token}\n".encode())

    def close(self) -> None:
        os.close(self._fd)


def read(path: str) -> list[Event]:
    events = []
    with open(path, encoding="ascii") as file:
        for line in file:
            at, kind, who, lock, token = line.split()
            events.append(Event(int(at), kind, who, lock, int(token)))
    return sorted(events)


class Hold(NamedTuple):
    begin: int
    end: int | None
    who: str
    token: int


def check(events: Sequence[Event]) -> list[str]:
    """Everything that must never be: overlaps, tokens that do not rise, wants that got nothing."""
    problems = []
    for lock, holds in _holds(events).items():
        latest: Hold | None = None
        for hold in holds:
            if latest is not None:
                if latest.end is None or hold.begin < latest.end:
                    problems.append(f"{lock}: {hold.who} got it while {latest.who} held it")
                if hold.token <= latest.token:
                    problems.append(
                        f"{lock}: token {hold.token} of {hold.who} is not above {latest.token}"
                    )
            latest = hold
    return problems + _unfinished(events)


def _holds(events: Iterable[Event]) -> dict[str, list[Hold]]:
    """In the order in which they began."""
    holds: dict[str, list[Hold]] = defaultdict(list)
    open_holds: dict[tuple[str, str], int] = {}
    for event in events:
        key = (event.who, event.lock)
        if event.kind == "in":
            open_holds[key] = len(holds[event.lock])
            holds[event.lock].append(Hold(event.at, None, event.who, event.token))
        elif event.kind == "out" and key in open_holds:
            place = open_holds.pop(key)
            holds[event.lock][place] = holds[event.lock][place]._replace(end=event.at)
        elif event.kind == "kill":
            for who, lock in [key for key in open_holds if key[0] == event.who]:
                place = open_holds.pop((who, lock))
                holds[lock][place] = holds[lock][place]._replace(end=event.at)
    return holds


def _unfinished(events: Iterable[Event]) -> list[str]:
    """Returns the actors that began, and neither got all of their turns nor were killed."""
    began = {event.who for event in events if event.kind == "want"}
    ended = {event.who for event in events if event.kind in ("quit", "kill")}
    return [f"{who} never got all of its turns" for who in sorted(began - ended)]


def turns(events: Iterable[Event]) -> Counter[str]:
    return Counter(event.who for event in events if event.kind == "in")


def jain(shares: Iterable[float]) -> float:
    """Jain's index of fairness: 1 when all have the same, 1/n when one has everything."""
    values = list(shares)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def shares_when_first_is_done(events: Sequence[Event]) -> dict[str, int]:
    """Returns how many turns each actor had had when the first one had had all of its own.

    Killed actors are left out; all the others wanted the lock all of the time.
    """
    killed = {event.who for event in events if event.kind == "kill"}
    everybody = {event.who for event in events if event.kind == "want"} - killed
    most = max(turns(events).values())
    had: Counter[str] = Counter()
    for event in events:
        if event.kind == "in":
            had[event.who] += 1
            if had[event.who] == most:
                break
    return {who: had[who] for who in everybody}


def most_overtaken(events: Iterable[Event]) -> int:
    """The most turns that one other had between somebody's asking and its getting."""
    worst = 0
    waiting: dict[str, Counter[str]] = {}
    for event in events:
        if event.kind == "want":
            waiting[event.who] = Counter()
        elif event.kind == "in":
            seen = waiting.pop(event.who, None)
            if seen:
                worst = max(worst, *seen.values())
            for others in waiting.values():
                others[event.who] += 1
        elif event.kind == "kill":
            waiting.pop(event.who, None)
    return worst
